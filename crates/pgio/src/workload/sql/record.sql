            us := date_part('epoch', clock_timestamp() - {since}) * 1e6;
            {class}_us := {class}_us + us;
            IF us > {class}_max THEN
                {class}_max := us;
            END IF;
            b := least(512, 17 + (ln(greatest(us, 0.5)) * 23.0831)::int);
            {class}_h[b] := {class}_h[b] + 1;
