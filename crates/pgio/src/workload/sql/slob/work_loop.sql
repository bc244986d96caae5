        -- Check this before any draw, so that the calls do not depend on the slices.
        EXIT WHEN calls >= {at_most} OR clock_timestamp() >= until_at;
        calls := calls + 1;
