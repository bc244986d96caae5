                ROLLBACK;
                rows_updated := rows_updated - pending_rows;
                rows_lost := rows_lost + pending_rows;
                pending := 0;
                pending_rows := 0;
