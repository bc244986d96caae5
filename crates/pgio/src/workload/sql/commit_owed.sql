    IF pending > 0 THEN
{commit}
    END IF;
