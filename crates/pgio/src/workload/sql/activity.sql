-- Whether one of these sessions computes, and whether one waits for a device or another process. With
-- track_activities off, none is active: those sessions have as long as blocked ones.
SELECT coalesce(bool_or(wait_event IS NULL), false),
       coalesce(bool_or(wait_event_type NOT IN ('Lock', 'Client') AND wait_event <> 'SyncRep'), false)
  FROM pg_stat_activity
 WHERE pid = ANY($1) AND state = 'active'
