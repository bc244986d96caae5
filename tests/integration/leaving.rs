//! Sessions stay until telemetry has read the end of their window: the work of their processes is read from
//! the kernel then, and an ended process has no counters.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pgio::config::Layer;
use pgio::config::resolve::CommitSettings;
use pgio::config::value::EngineName;
use pgio::host::stop::Stop;
use pgio::workload::commit::Commit;
use pgio::workload::{Setup, WindowEvent, Workload};
use pgio_connect::Client;
use pgio_connect::{Env, resolve};

use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use pgio_tests::timing::wait_until;

fn count_sessions(admin: &mut Client, pids: &[i32]) -> usize {
    let sql = "SELECT pid FROM pg_stat_activity WHERE pid = ANY($1)";
    admin.query(sql, &[&pids]).unwrap().len()
}

#[test]
fn sessions_stay_until_telemetry_has_read_the_end() {
    for engine in [EngineName::Server, EngineName::Client] {
        let dsn = fresh_database(shared_primary(INSTALLED));
        let mut admin = connect(&dsn);
        let window = Some(Duration::from_millis(300));
        let layer =
            Layer { sessions: Some(4), engine: Some(engine), run_time: window, ..Layer::default() };
        let settings = CommitSettings::resolve(layer).unwrap();
        let work: Arc<dyn Workload> = Arc::new(Commit { settings, schema: "public".to_owned() });
        work.before_trial(&mut admin).unwrap();
        let setup = Setup {
            generator: Default::default(),
            params: resolve(&dsn, &Env::default()).unwrap(),
            settings: Vec::new(),
            reads_settings: false,
            warmup: Duration::ZERO,
            seed: 1,
            stop: Stop::new(),
            opener: None,
        };
        let ready = Arc::clone(&work).prepare(setup, &mut admin).unwrap();
        let (pids, mut sessions_at_close) = (ready.pids(), None);
        let ran = ready.run(&mut admin, work.extent(), &mut |admin, event| {
            if let WindowEvent::Closed(_) = event {
                thread::sleep(Duration::from_millis(500));
                sessions_at_close = Some(count_sessions(admin, &pids));
            }
        });
        assert!(ran.unwrap().error.is_none());
        assert_eq!((pids.len(), sessions_at_close), (4, Some(4)), "{engine:?}");
        wait_until("they have left", || count_sessions(&mut admin, &pids) == 0);
    }
}
