-- A loading session must not inherit limits that were set for an application.
SET statement_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
-- DROP waits for whoever uses the former table; better to say so than to hang.
SET lock_timeout = '5s';
