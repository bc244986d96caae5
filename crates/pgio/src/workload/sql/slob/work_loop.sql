        -- Looked at before anything is drawn: the calls are the same however slices fall.
        EXIT WHEN calls >= {at_most} OR clock_timestamp() >= until_at;
        calls := calls + 1;
