            IF in_hot_table THEN
{there}
            ELSE
{here}
            END IF;
