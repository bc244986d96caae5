//! Tests of resolving layers to settings.

use super::*;
use crate::config::value::Access;

fn scale(text: &str) -> Option<Scale> {
    Some(text.parse().unwrap())
}

#[test]
fn empty_layers_give_the_originals_defaults() {
    let slob = SlobSettings::resolve(Layer::default()).unwrap();
    assert_eq!(
        slob,
        SlobSettings {
            update_pct: 0,
            run_time: Duration::from_secs(300),
            warmup: Duration::ZERO,
            num_schemas: 1,
            num_threads: 1,
            sessions: None,
            work_unit: 255,
            update_work_unit: 255,
            scale: "128G".parse().unwrap(),
            access: Access::Index,
            commit_every: 1,
            batch: 1,
            features: Features::default(),
            engine: Engine::Server,
            seed: None,
        }
    );
    let load = LoadSettings::resolve(Layer::default()).unwrap();
    assert_eq!(load.scale, "4G".parse().unwrap());
    assert!(load.create_base_table);
    assert_eq!((load.layout, load.scan_scale), (Layout::default(), None));
    let commit = CommitSettings::resolve(Layer::default()).unwrap();
    assert_eq!(commit.extent, Extent::Time(Duration::from_secs(300)));
    assert_eq!((commit.sessions, commit.rows_per_transaction, commit.payload), (1, 1, 0));
}

#[test]
fn keys_override_defaults() {
    let layer = Layer { transactions: Some(10_000), sessions: Some(4), ..Layer::default() };
    let commit = CommitSettings::resolve(layer).unwrap();
    assert_eq!(commit.extent, Extent::Transactions(10_000));
    assert_eq!(commit.sessions, 4);
}

#[test]
fn batch_requires_a_work_unit_of_one() {
    let batch = Layer { batch: Some(50), scale: scale("8M"), ..Layer::default() };
    let refused = SlobSettings::resolve(batch.clone()).unwrap_err();
    assert_eq!(refused, ResolveError::BatchRequiresSingleBlocks(255));
    assert!(SlobSettings::resolve(Layer { work_unit: Some(1), ..batch }).is_ok());
}

#[test]
fn sessions_are_per_table_or_in_total() {
    let settings = |num_schemas: u32, num_threads: u32, sessions: Option<u32>| {
        let (num_schemas, num_threads) = (Some(num_schemas), Some(num_threads));
        let layer = Layer { num_schemas, num_threads, sessions, ..Layer::default() };
        let settings = SlobSettings::resolve(layer).unwrap();
        (settings.sessions(), settings.tables_per_session())
    };
    assert_eq!(settings(4, 2, None), (8, 1));
    assert_eq!(settings(4, 2, Some(6)), (6, 1));
    assert_eq!(settings(4096, 1, Some(64)), (64, 64));
    assert_eq!(settings(7, 1, Some(3)), (3, 3));
}

#[test]
fn rows_that_share_a_block_are_refused() {
    let resolve = |fillfactor: u8, filler_width: Option<u32>| {
        let fillfactor = Some(fillfactor);
        LoadSettings::resolve(Layer { fillfactor, filler_width, ..Layer::default() })
    };
    assert_eq!(resolve(26, None).unwrap().layout.fillfactor, 26);
    assert_eq!(
        resolve(27, None).unwrap_err().to_string(),
        "with FILLFACTOR=27, two rows of FILLER_WIDTH=1024 share a block, but each visit must touch exactly one row; \
         the largest FILLFACTOR for this width is 26"
    );
    assert!(resolve(100, Some(8116)).is_ok());
}

#[test]
fn updates_require_room_for_a_second_row_version() {
    let wide = |update_pct: u8, filler_width: u32| {
        let (update_pct, filler_width) = (Some(update_pct), Some(filler_width));
        SlobSettings::resolve(Layer { update_pct, filler_width, ..Layer::default() })
    };
    assert!(wide(0, 8116).is_ok());
    let written = |update_width: u32| {
        let (update_pct, update_width) = (Some(10), Some(update_width));
        let filler_width = Some(500);
        let layer = Layer { update_pct, filler_width, update_width, ..Layer::default() };
        SlobSettings::resolve(layer)
    };
    assert!(written(500).is_ok());
    assert_eq!(written(501).unwrap_err(), ResolveError::UpdateOverFiller(501, 500));
    assert!(wide(1, 4028).is_ok());
    assert_eq!(
        wide(1, 4029).unwrap_err().to_string(),
        "rows with FILLER_WIDTH=4029 leave no room in their block for an updated version: each update would move its row \
         to another block and the tables would grow; set UPDATE_PCT=0, or load with FILLER_WIDTH=4028 or less"
    );
}

#[test]
fn work_units_larger_than_the_scale_are_refused() {
    let fits = Layer { work_unit: Some(1024), scale: scale("8M"), ..Layer::default() };
    assert!(SlobSettings::resolve(fits.clone()).is_ok());
    let read = Layer { work_unit: Some(1025), ..fits.clone() };
    assert_eq!(
        SlobSettings::resolve(read).unwrap_err().to_string(),
        "WORK_UNIT (1025 blocks) is larger than SCALE (8M, 1024 blocks); lower WORK_UNIT or \
         load a larger SCALE"
    );
    let update = Layer { update_work_unit: Some(2000), ..fits };
    assert_eq!(
        SlobSettings::resolve(update).unwrap_err().to_string(),
        "UPDATE_WORK_UNIT (2000 blocks) is larger than SCALE (8M, 1024 blocks); lower \
         UPDATE_WORK_UNIT or load a larger SCALE"
    );
}

#[test]
fn connect_string_overrides_dbname() {
    let layer = |connect: Option<&str>, dbname: Option<&str>| Layer {
        connect_string: connect.map(ConnectString::new),
        dbname: dbname.map(str::to_owned),
        ..Layer::default()
    };
    assert_eq!(connect_string(&layer(Some("host=a"), Some("b"))).expose(), "host=a");
    assert_eq!(connect_string(&layer(Some(""), Some("b"))).expose(), "");
    assert_eq!(connect_string(&layer(None, Some("b"))).expose(), "b");
    assert_eq!(connect_string(&layer(None, None)).expose(), "pg10");
}
