            in_hot_table := random() < {hot_table_share};
            IF in_hot_table THEN
                hot_table := hot_table + 1;
            END IF;
