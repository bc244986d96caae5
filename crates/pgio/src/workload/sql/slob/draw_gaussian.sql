            -- Box and Muller (1958); what falls outside the table is drawn again.
            LOOP
                x := {mean} + {sd} * sqrt(-2 * ln(1 - random())) * cos(6.283185307179586 * random());
                EXIT WHEN x >= 0 AND x < {starts};
            END LOOP;
            k := 1 + floor(x)::bigint;
            IF k BETWEEN {hot_first} AND {hot_last} THEN
                hot := hot + 1;
            END IF;
