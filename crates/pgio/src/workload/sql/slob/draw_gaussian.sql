            -- Box and Muller (1958); draw again if the key is outside the table.
            LOOP
                k := 1 + floor({mean} + {sd} * sqrt(-2 * ln(1 - random())) * cos(6.283185307179586 * random()))::bigint;
                EXIT WHEN k BETWEEN 1 AND {starts};
            END LOOP;
