# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_pgio_global_optspecs
    string join \n h/help V/version
end

function __fish_pgio_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_pgio_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_pgio_using_subcommand
    set -l cmd (__fish_pgio_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c pgio -n "__fish_pgio_needs_command" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_needs_command" -s V -l version -d 'Print version'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "demo" -d 'Show in about a minute what synchronous replication costs, on private servers'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "setup" -d 'Load the data set that ./pgio.conf and the flags describe'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "run" -d 'Run one trial: print the classic lines, then latencies and checks'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "compare" -d 'Run an experiment: the same workload under each condition, in random order'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "plan" -d 'Compute from a pilot how many blocks decide whether effects exceed a margin'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "report" -d 'Show the report of a stored experiment'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "doctor" -d 'Check what is missing and what would spoil a measurement; change nothing'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "undo" -d 'Undo the changes that an interrupted run left in place'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "destroy" -d 'Drop what setup and workloads created, and nothing else'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "example" -d 'Print a commented example experiment'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "device" -d 'Measure one device, or compare two, without PostgreSQL: throughput, latency, random I/O'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "drive" -d 'Generate load for the pgio that started this one with --drivers'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "ballast" -d 'Leave only SIZE of this machine\'s memory free, until --release'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "history" -d 'Show an experiment over many runs: level changes, trends, environment changes'
complete -c pgio -n "__fish_pgio_needs_command" -f -a "store" -d 'Store results in a PostgreSQL database'
complete -c pgio -n "__fish_pgio_using_subcommand demo" -l out -d 'Write the results to this directory' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand demo" -l pg -d 'Major version of PostgreSQL; default: the newest installed, else the newest downloaded' -r
complete -c pgio -n "__fish_pgio_using_subcommand demo" -l blocks -d 'Number of blocks; fewer take less time but might leave effects undecided' -r
complete -c pgio -n "__fish_pgio_using_subcommand demo" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l classic-files -d 'Write pgio_objects_creation.out and pgio_data_load_table_sizes.out to this directory' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l config -d 'Read this instead of ./pgio.conf' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l dbname -d 'Database whose statistics pgio reads [DBNAME; default with a pgio.conf: pg10]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l connect-string -d 'Database to connect to: a database name, a conninfo string or a URI; without a pgio.conf, the PG* variables apply [CONNECT_STRING; default with a pgio.conf: pg10]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l num-schemas -d 'Number of tables, pgio1 to pgioN [NUM_SCHEMAS; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l num-threads -d 'Sessions per table; when loading, number of tables to load in parallel [NUM_THREADS; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l scale -d 'Size of each table: N blocks of 8 kB, or NM, NG or NT [SCALE; default 4G]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l create-base-table -d 'Also create the table pgio_base [CREATE_BASE_TABLE; default TRUE]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l tablespace -d 'Tablespace for the tables [TABLESPACE]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l filler -d 'Content of the filler: plain (all rows the same, as in the original) or random (incompressible) [FILLER; default plain]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l filler-width -d 'Bytes of filler per row; above 4028, an updated row does not fit into its block [FILLER_WIDTH; default 1024]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l fillfactor -d 'Fillfactor of the tables; each block must hold exactly one row [FILLFACTOR; default 10]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l unlogged -d 'Create unlogged tables, whose changes write no WAL [UNLOGGED; default FALSE]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l scan-scale -d 'Size of the table pgio_scan for full table scans; setup loads no such table without it [SCAN_SCALE]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l seed -d 'Seed of all random choices (default: drawn and recorded) [SEED]' -r
complete -c pgio -n "__fish_pgio_using_subcommand setup" -l no-space-check -d 'Load even if the server may have too little free disk space, or that cannot be known'
complete -c pgio -n "__fish_pgio_using_subcommand setup" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand run" -l json -d 'Store the trial as JSON; `-` is standard output' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand run" -l classic-files -d 'Write the original\'s files to this directory: iostat.out, vmstat.out, mpstat.out, pgio_diskstats.out, pgio_session_detail.out, pgio_objects_creation.out and pgio_data_load_table_sizes.out' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand run" -l telemetry -d 'Sampling interval of telemetry on server and host; 0 disables it' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l tolerate -d 'Let a trial count that this check would make invalid; may be repeated' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l config -d 'Read this instead of ./pgio.conf' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand run" -l dbname -d 'Database whose statistics pgio reads [DBNAME; default with a pgio.conf: pg10]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l connect-string -d 'Database to connect to: a database name, a conninfo string or a URI; without a pgio.conf, the PG* variables apply [CONNECT_STRING; default with a pgio.conf: pg10]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l num-schemas -d 'Number of tables, pgio1 to pgioN [NUM_SCHEMAS; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l num-threads -d 'Sessions per table; when loading, number of tables to load in parallel [NUM_THREADS; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l scale -d 'Size of each table: N blocks of 8 kB, or NM, NG or NT [SCALE; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l filler -d 'Content of the filler: plain (all rows the same, as in the original) or random (incompressible) [FILLER; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l filler-width -d 'Bytes of filler per row; above 4028, an updated row does not fit into its block [FILLER_WIDTH; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l fillfactor -d 'Fillfactor of the tables; each block must hold exactly one row [FILLFACTOR; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l unlogged -d 'Create unlogged tables, whose changes write no WAL [UNLOGGED; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l scan-scale -d 'Size of the table pgio_scan for full table scans; setup loads no such table without it [SCAN_SCALE; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l update-pct -d 'Percentage of calls that update [UPDATE_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l run-time -d 'Length of the measured window; a number without unit is in seconds [RUN_TIME; default 300]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l work-unit -d 'Blocks visited by a read call [WORK_UNIT; default 255]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l update-work-unit -d 'Blocks visited by an update call [UPDATE_WORK_UNIT; default 255]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l access -d 'How statements find blocks: index (one read at a time) or bitmap (prefetched) [ACCESS; default index]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l commit-every -d 'Update calls per transaction; 0 is one transaction per session, as in the original [COMMIT_EVERY; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l batch -d 'Visits per statement, if the latency of each visit is not needed; requires WORK_UNIT=1; 1 is off [BATCH; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l skew -d 'Distribution of visits over the keys [SKEW; default uniform]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l zipf-exponent -d 'Exponent for skew zipf: key k is visited in proportion to 1 / k to this power (default 1) [ZIPF_EXPONENT]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l gaussian-mean -d 'Center of the visits for skew gaussian, in % of the table (default 50) [GAUSSIAN_MEAN]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l gaussian-sd -d 'Standard deviation of the visits for skew gaussian, in % of the table (default 10) [GAUSSIAN_SD]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l hot-spot -d 'Size of the hot spot of each table [HOT_SPOT]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l hot-offset -d 'Offset of the hot spot in the table (default 0) [HOT_OFFSET]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l hot-pct -d 'Percentage of calls that visit the hot spot; the others visit the rest of the table [HOT_PCT]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l hot-table -d 'Number of a table that all sessions visit in addition to their own [HOT_TABLE]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l hot-table-pct -d 'Percentage of reads and updates that visit the hot table [HOT_TABLE_PCT]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l scan-pct -d 'Percentage of calls that scan the table pgio_scan [SCAN_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l insert-pct -d 'Percentage of calls that insert a row into the table pgio_turnover [INSERT_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l delete-pct -d 'Percentage of calls that delete the oldest row of pgio_turnover; must equal INSERT_PCT [DELETE_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l update-width -d 'Bytes of filler that an update rewrites in addition to its counter, for more WAL [UPDATE_WIDTH; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l think-pct -d 'Percentage of calls after which a session pauses [THINK_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l think-min -d 'Shortest pause (default 0) [THINK_MIN]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l think-max -d 'Longest pause [THINK_MAX]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l work-loop -d 'Number of calls per session, instead of a fixed time [WORK_LOOP]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l ramp -d 'Part of the warm-up during which the sessions connect one after another [RAMP; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l table-model -d 'How sessions are assigned to the tables: many (in turn) or single (all NUM_SCHEMAS × NUM_THREADS sessions use pgio1) [TABLE_MODEL; default many]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l seed -d 'Seed of all random choices (default: drawn and recorded) [SEED]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l warmup -d 'Time that the workload runs before the window starts [WARMUP; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l sessions -d 'Number of sessions; for a command, the value of {sessions}; for slob, replaces NUM_SCHEMAS × NUM_THREADS: if there are fewer sessions than tables, each session visits several tables in turn [SESSIONS]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l engine -d 'Engine that sends the statements: server (PL/pgSQL blocks in the sessions) or client (pgio sends each prepared statement) [ENGINE; default server]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l pipeline -d 'Calls in flight per session; requires engine = client [PIPELINE; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l rate -d 'Calls per second that all sessions together start (open loop), instead of one call after another; requires engine = client [RATE]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l arrivals -d 'Arrival process of a rate: fixed (equal intervals) or poisson (independent arrivals) [ARRIVALS; default fixed]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l client-threads -d 'Threads of pgio that send calls and receive results; requires engine = client [CLIENT_THREADS; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand run" -l strict -d 'Fail with exit code 5 also if others disturbed the trial (foreign-load, foreign-sessions, steal)'
complete -c pgio -n "__fish_pgio_using_subcommand run" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l out -d 'Write the results to this directory instead of pgio-results/NAME-TIME' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l resume -d 'Continue an interrupted experiment; complete pairs of trials are not repeated' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l blocks -d 'With --resume: increase the number of blocks to N' -r
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l max-blocks -d 'With --resume of an experiment with a precision: increase the maximum number of blocks to N' -r
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l matters -d 'The margin: an effect smaller than this share does not matter; replaces `matters` of the file' -r
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l weave -d 'Interleave the conditions of a block in slices of this mean length (such as 20ms); auto finds the length, false gives each trial its own window; replaces `weave` in the file' -r
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l drivers -d 'Generate the load by several drivers: local:N, slurm:N, kubernetes:N, run:COMMAND or run:N:COMMAND, with {drive} in COMMAND; replaces `engine` of [drivers]' -r
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l image -d 'Container image for Kubernetes drivers' -r
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l live -d 'Serve the report to browsers at this address, such as 127.0.0.1:8080, while the experiment runs' -r
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l live-token-file -d 'Read the token that browsers must send from this file instead of PGIO_LIVE_TOKEN; an address that is not loopback requires a token' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l gate -d 'Exit with 8 if a condition is worse by more than the margin, with 9 if that is undecided'
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l plan -d 'Print what each condition changes and the time it takes, run the checks of a real run, and change nothing'
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l offline -d 'With --plan: check the files only; show current values where a server answers'
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l order -d 'With --plan: list every trial in its order'
complete -c pgio -n "__fish_pgio_using_subcommand compare" -l dry-run -d 'With --drivers kubernetes:N: print the manifest and do nothing'
complete -c pgio -n "__fish_pgio_using_subcommand compare" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand plan" -l pilot -d 'Results of compare for the same experiment with four blocks or more, or of one of its workloads' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand plan" -l matters -d 'The margin: an effect smaller than this share does not matter; replaces `matters` of the file' -r
complete -c pgio -n "__fish_pgio_using_subcommand plan" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand report" -l format -r -f -a "text\t''
html\t'One self-contained page'
markdown\t''
csv\t'One row per condition and metric'
json\t''
openmetrics\t'For Prometheus; a .prom file for node exporter\'s textfile collector'
junit\t'Test cases for CI: each condition, or each --fail-if'"
complete -c pgio -n "__fish_pgio_using_subcommand report" -l baseline -d 'Compare with this condition instead of the experiment\'s own baseline' -r
complete -c pgio -n "__fish_pgio_using_subcommand report" -l matters -d 'The margin: an effect smaller than this share does not matter; replaces that of the experiment' -r
complete -c pgio -n "__fish_pgio_using_subcommand report" -l out -l output -d 'Write to this file instead of stdout' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand report" -l against -d 'Compare the runs in DIR with these older runs; with three or more runs on each side, differences are judged' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand report" -l fail-if -d 'Exit with 8 if the runs are slower than those of --against by more than this share, such as slower:5%, changed:5% or commit_latency_p99:slower:10%; with 9 if that is undecided. May be repeated' -r
complete -c pgio -n "__fish_pgio_using_subcommand report" -l all -d 'With --format text: all tables and remarks, not only the answers'
complete -c pgio -n "__fish_pgio_using_subcommand report" -l gate -d 'Exit with 8 if a condition is worse by more than the margin, with 9 if that is undecided'
complete -c pgio -n "__fish_pgio_using_subcommand report" -l wide -d 'With --format csv: a row for each trial and a column for each metric'
complete -c pgio -n "__fish_pgio_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l format -r -f -a "text\t''
json\t''"
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l config -d 'Read this instead of ./pgio.conf' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l dbname -d 'Database whose statistics pgio reads [DBNAME; default with a pgio.conf: pg10]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l connect-string -d 'Database to connect to: a database name, a conninfo string or a URI; without a pgio.conf, the PG* variables apply [CONNECT_STRING; default with a pgio.conf: pg10]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l num-schemas -d 'Number of tables, pgio1 to pgioN [NUM_SCHEMAS; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l num-threads -d 'Sessions per table; when loading, number of tables to load in parallel [NUM_THREADS; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l scale -d 'Size of each table: N blocks of 8 kB, or NM, NG or NT [SCALE; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l filler -d 'Content of the filler: plain (all rows the same, as in the original) or random (incompressible) [FILLER; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l filler-width -d 'Bytes of filler per row; above 4028, an updated row does not fit into its block [FILLER_WIDTH; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l fillfactor -d 'Fillfactor of the tables; each block must hold exactly one row [FILLFACTOR; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l unlogged -d 'Create unlogged tables, whose changes write no WAL [UNLOGGED; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l scan-scale -d 'Size of the table pgio_scan for full table scans; setup loads no such table without it [SCAN_SCALE; default: as loaded]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l update-pct -d 'Percentage of calls that update [UPDATE_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l run-time -d 'Length of the measured window; a number without unit is in seconds [RUN_TIME; default 300]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l work-unit -d 'Blocks visited by a read call [WORK_UNIT; default 255]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l update-work-unit -d 'Blocks visited by an update call [UPDATE_WORK_UNIT; default 255]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l access -d 'How statements find blocks: index (one read at a time) or bitmap (prefetched) [ACCESS; default index]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l commit-every -d 'Update calls per transaction; 0 is one transaction per session, as in the original [COMMIT_EVERY; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l batch -d 'Visits per statement, if the latency of each visit is not needed; requires WORK_UNIT=1; 1 is off [BATCH; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l skew -d 'Distribution of visits over the keys [SKEW; default uniform]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l zipf-exponent -d 'Exponent for skew zipf: key k is visited in proportion to 1 / k to this power (default 1) [ZIPF_EXPONENT]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l gaussian-mean -d 'Center of the visits for skew gaussian, in % of the table (default 50) [GAUSSIAN_MEAN]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l gaussian-sd -d 'Standard deviation of the visits for skew gaussian, in % of the table (default 10) [GAUSSIAN_SD]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l hot-spot -d 'Size of the hot spot of each table [HOT_SPOT]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l hot-offset -d 'Offset of the hot spot in the table (default 0) [HOT_OFFSET]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l hot-pct -d 'Percentage of calls that visit the hot spot; the others visit the rest of the table [HOT_PCT]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l hot-table -d 'Number of a table that all sessions visit in addition to their own [HOT_TABLE]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l hot-table-pct -d 'Percentage of reads and updates that visit the hot table [HOT_TABLE_PCT]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l scan-pct -d 'Percentage of calls that scan the table pgio_scan [SCAN_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l insert-pct -d 'Percentage of calls that insert a row into the table pgio_turnover [INSERT_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l delete-pct -d 'Percentage of calls that delete the oldest row of pgio_turnover; must equal INSERT_PCT [DELETE_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l update-width -d 'Bytes of filler that an update rewrites in addition to its counter, for more WAL [UPDATE_WIDTH; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l think-pct -d 'Percentage of calls after which a session pauses [THINK_PCT; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l think-min -d 'Shortest pause (default 0) [THINK_MIN]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l think-max -d 'Longest pause [THINK_MAX]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l work-loop -d 'Number of calls per session, instead of a fixed time [WORK_LOOP]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l ramp -d 'Part of the warm-up during which the sessions connect one after another [RAMP; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l table-model -d 'How sessions are assigned to the tables: many (in turn) or single (all NUM_SCHEMAS × NUM_THREADS sessions use pgio1) [TABLE_MODEL; default many]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l seed -d 'Seed of all random choices (default: drawn and recorded) [SEED]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l warmup -d 'Time that the workload runs before the window starts [WARMUP; default 0]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l sessions -d 'Number of sessions; for a command, the value of {sessions}; for slob, replaces NUM_SCHEMAS × NUM_THREADS: if there are fewer sessions than tables, each session visits several tables in turn [SESSIONS]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l engine -d 'Engine that sends the statements: server (PL/pgSQL blocks in the sessions) or client (pgio sends each prepared statement) [ENGINE; default server]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l pipeline -d 'Calls in flight per session; requires engine = client [PIPELINE; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l rate -d 'Calls per second that all sessions together start (open loop), instead of one call after another; requires engine = client [RATE]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l arrivals -d 'Arrival process of a rate: fixed (equal intervals) or poisson (independent arrivals) [ARRIVALS; default fixed]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -l client-threads -d 'Threads of pgio that send calls and receive results; requires engine = client [CLIENT_THREADS; default 1]' -r
complete -c pgio -n "__fish_pgio_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand undo" -l connect -d 'Use this connection string instead of the journal\'s, for example to reach the server at another address; also end sessions that an interrupted run left on that server' -r
complete -c pgio -n "__fish_pgio_using_subcommand undo" -l forget -d 'Remove the journal of this run instead, whose server or host is gone; prints what stays in place' -r
complete -c pgio -n "__fish_pgio_using_subcommand undo" -l keep -d 'Keep a value that someone changed after the run'
complete -c pgio -n "__fish_pgio_using_subcommand undo" -l restore -d 'Restore the prior value even if someone changed it after the run'
complete -c pgio -n "__fish_pgio_using_subcommand undo" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand destroy" -l config -d 'Read this instead of ./pgio.conf' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand destroy" -l dbname -d 'Database whose statistics pgio reads [DBNAME; default with a pgio.conf: pg10]' -r
complete -c pgio -n "__fish_pgio_using_subcommand destroy" -l connect-string -d 'Database to connect to: a database name, a conninfo string or a URI; without a pgio.conf, the PG* variables apply [CONNECT_STRING; default with a pgio.conf: pg10]' -r
complete -c pgio -n "__fish_pgio_using_subcommand destroy" -s y -l yes -d 'Do not ask for confirmation'
complete -c pgio -n "__fish_pgio_using_subcommand destroy" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand example" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand device" -l against -d 'Measure this one as well, alternately, and compare the two' -r
complete -c pgio -n "__fish_pgio_using_subcommand device" -l uuid -d 'UUID of a file system or other content that --destroy may overwrite; repeat for each' -r
complete -c pgio -n "__fish_pgio_using_subcommand device" -l rounds -d 'Number of passes over all tests [default: 5 as in the User\'s Guide; with --against 6, the fewest that can reach a verdict]' -r
complete -c pgio -n "__fish_pgio_using_subcommand device" -l size -d 'Size of the scratch file, or of the part of a device or file to test' -r
complete -c pgio -n "__fish_pgio_using_subcommand device" -l duration -d 'Duration of each random test' -r
complete -c pgio -n "__fish_pgio_using_subcommand device" -l seed -d 'Seed of the test order and of random offsets [default: drawn]' -r
complete -c pgio -n "__fish_pgio_using_subcommand device" -l json -d 'Store all runs and results as JSON; `-` is standard output' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand device" -l destroy -d 'Run the write tests too, overwriting existing contents'
complete -c pgio -n "__fish_pgio_using_subcommand device" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand drive" -l coordinator -d 'Addresses of the coordinator, separated by commas' -r
complete -c pgio -n "__fish_pgio_using_subcommand drive" -l within -d 'Give up if no coordinator answers within this many seconds' -r
complete -c pgio -n "__fish_pgio_using_subcommand drive" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand ballast" -l release -d 'Release the ballast'
complete -c pgio -n "__fish_pgio_using_subcommand ballast" -s y -l yes -d 'Do not ask for confirmation'
complete -c pgio -n "__fish_pgio_using_subcommand ballast" -s h -l help -d 'Print help'
complete -c pgio -n "__fish_pgio_using_subcommand history" -l store -d 'Read the results database that `pgio store` filled' -r
complete -c pgio -n "__fish_pgio_using_subcommand history" -l experiment -d 'Show this experiment, if the results are of several' -r
complete -c pgio -n "__fish_pgio_using_subcommand history" -l metric -d 'Show this metric [default: the primary metric]' -r
complete -c pgio -n "__fish_pgio_using_subcommand history" -l format -r -f -a "text\t''
html\t'One self-contained page with a chart for each condition'
markdown\t''
csv\t'One row per run and condition'
json\t''"
complete -c pgio -n "__fish_pgio_using_subcommand history" -l out -l output -d 'Write to this file instead of stdout' -r -F
complete -c pgio -n "__fish_pgio_using_subcommand history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pgio -n "__fish_pgio_using_subcommand store" -l to -d 'The database that takes the results, as a connection string, a URI or the name of a database' -r
complete -c pgio -n "__fish_pgio_using_subcommand store" -s h -l help -d 'Print help'
