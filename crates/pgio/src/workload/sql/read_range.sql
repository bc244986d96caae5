            SELECT count(*) INTO n FROM {table} WHERE mykey BETWEEN k AND k + {work_unit_less_one};
