            SELECT scratch INTO n FROM {table} WHERE mykey = k;
            GET DIAGNOSTICS n = ROW_COUNT;
