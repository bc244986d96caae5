            pending := pending + 1;
            pending_rows := pending_rows + n;
            IF pending >= {commit_every} THEN
                pending := 0;
                pending_rows := 0;
{commit}
            END IF;
