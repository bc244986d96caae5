            UPDATE {table} SET scratch = scratch + 1{wider} WHERE {update_where};
            GET DIAGNOSTICS n = ROW_COUNT;
