            k := 1 + floor(random() * {span})::bigint;
