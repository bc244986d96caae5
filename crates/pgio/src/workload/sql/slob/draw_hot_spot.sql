            IF random() < {hot_share} THEN
                k := {hot_first} + floor(random() * {hot_starts})::bigint;
            ELSE
                k := 1 + floor(random() * {cold_starts})::bigint;
                IF k > {starts_before} THEN
                    k := k + {gap};
                END IF;
            END IF;
