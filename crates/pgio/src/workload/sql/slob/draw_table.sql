            in_hot_table := random() < {hot_table_share};
