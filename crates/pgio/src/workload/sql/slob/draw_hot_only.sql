            k := {hot_first} + floor(random() * {hot_starts})::bigint;
