//! Generates the DO block of a session from the files in sql/.
//!
//! A feature that is not used adds nothing: without the keys of `config::resolve::features` the loop
//! only reads, updates and commits. Next: sql/slob.sql, the template.

use super::draw::{Draw, count_if, float};
use super::tables::{self, Slob, key_range};
use crate::config::resolve::{Features, HotTable, KeyDistribution, SlobSettings, Think};
use crate::workload::slice::BLOCKS_SCANNED;
use crate::workload::sql::{self, fill};

/// Each digest gives 43 incompressible characters.
const DIGEST_CHARACTERS: u32 = 43;
/// An update writes another substring than the previous update, so that all its bytes differ.
const SHIFTS: u32 = 1024;

/// Parts of the block that are empty in most runs.
#[derive(Debug, Default)]
struct Pieces {
    variables: String,
    before: String,
    call_begins: String,
    other_calls: String,
    call_ends: String,
    after: String,
    counts: Vec<&'static str>,
    /// Classes besides read, update and commit.
    classes: Vec<&'static str>,
}

impl Pieces {
    fn variable(&mut self, declaration: &str) {
        self.variables += &format!("    {declaration};\n");
    }

    fn class(&mut self, name: &'static str) {
        self.classes.push(name);
        self.variable(&format!("{name}_us float8 := 0"));
        self.variable(&format!("{name}_max float8 := 0"));
        self.variable(&format!("{name}_h bigint[] := array_fill(0::bigint, ARRAY[512])"));
    }

    fn count(&mut self, name: &'static str, kind: &str) {
        self.counts.push(name);
        self.variable(&format!("{name} {kind} := 0"));
    }
}

/// Returns the block; `own` is the session's qualified table name.
pub(super) fn body(slob: &Slob, session: u32, own: &str) -> String {
    let s = &slob.settings;
    let f = &s.features;
    let read = match (s.batch, s.work_unit) {
        (2.., _) => sql::READ_BATCH,
        (_, 1) => sql::READ_ONE,
        _ => sql::READ_RANGE,
    };
    let (update, commit, owed) = match s.commit_every {
        // One statement takes its row locks in key order, so it can wait but not deadlock.
        1 => (sql::UPDATE_PLAIN, sql::COMMIT, ""),
        0 => (sql::UPDATE_RETRY, "", ""),
        _ => (sql::UPDATE_RETRY, sql::COMMIT_EVERY, sql::COMMIT_OWED),
    };
    // A transaction that lasts over the whole window cannot be rolled back from inside.
    let roll_back = if s.commit_every == 0 { "" } else { sql::ROLL_BACK };
    let pieces = build_pieces(slob, session);
    let (draw, [read, update]) = fill_tables(slob, own, [read, update].map(str::trim_end));
    let draw_of = |unit: u64| Draw { visits: &f.visits, keys: s.scale.blocks(), unit };
    let drawn = |unit: u64, span: &str| draw.clone() + &draw_of(unit).sql(span);
    let table = f.hot_table.is_some().then(|| count_if("hot_table", "in_hot_table"));
    let counted = |unit: u64| {
        let counts = [draw_of(unit).count_hot(), table.clone().unwrap_or_default()];
        counts.join("\n").trim_end().to_owned()
    };
    let exit = if f.work_loop.is_some() { "" } else { "            EXIT WHEN t0 >= until_at;" };
    let listed = |names: &[&str]| {
        names.iter().map(|n| format!("'{n}', {n}::bigint")).collect::<Vec<_>>().join(", ")
    };
    fill(
        sql::SLOB,
        &[
            ("variables", &pieces.variables),
            ("before", &pieces.before),
            ("call_begins", &pieces.call_begins),
            ("other_calls", &pieces.other_calls),
            ("call_ends", &pieces.call_ends),
            ("after", &pieces.after),
            ("counts", &listed(&pieces.counts)),
            (
                "classes",
                &pieces.classes.iter().map(|class| class_result(class)).collect::<String>(),
            ),
            ("draw_read", &drawn(s.work_unit, "read_span")),
            ("draw_update", &drawn(s.update_work_unit, "update_span")),
            ("count_read", &counted(s.work_unit)),
            ("count_update", &counted(s.update_work_unit)),
            ("exit", exit),
            ("read", &read),
            ("update", &update),
            ("wider", &widen_update(f)),
            ("commit", commit.trim_end()),
            ("last_commit", owed.trim_end()),
            ("roll_back", roll_back.trim_end()),
            ("commit", sql::COMMIT.trim_end()),
            ("record_read", &sql::record("read", "t0")),
            ("record_update", &sql::record("update", "t0")),
            ("record_commit", &sql::record("commit", "t0")),
            ("update_where", &key_range("k", s.update_work_unit)),
            ("keys", &s.scale.blocks().to_string()),
            ("is_update", &is_update(s)),
            ("work_unit_less_one", &(s.work_unit - 1).to_string()),
            ("work_unit", &s.work_unit.to_string()),
            ("update_work_unit", &s.update_work_unit.to_string()),
            ("commit_every", &s.commit_every.to_string()),
            ("batch", &s.batch.to_string()),
        ],
    )
}

fn class_result(class: &str) -> String {
    format!(
        "\n            '{class}', json_build_object('us', {class}_us::bigint, 'max', {class}_max::bigint, 'h', {class}_h),"
    )
}

/// Returns the draw of the table, if there are two, and the statements with their tables.
fn fill_tables(slob: &Slob, own: &str, statements: [&str; 2]) -> (String, [String; 2]) {
    let on = |statement: &str, table: &str| fill(statement, &[("table", table)]);
    let Some(HotTable { pct, .. }) = &slob.settings.features.hot_table else {
        return (String::new(), statements.map(|statement| on(statement, own)));
    };
    let hot = slob.hot_table().unwrap_or_default();
    let either = |statement: &str| {
        let (there, here) = (on(statement, &hot), on(statement, own));
        fill(sql::IN_HOT_TABLE.trim_end(), &[("there", &there), ("here", &here)])
    };
    let draw = fill(sql::DRAW_TABLE, &[("hot_table_share", &float(pct.share()))]);
    (draw, statements.map(either))
}

/// Returns the condition under which a call updates. With more than two kinds of calls, one draw
/// decides.
fn is_update(s: &SlobSettings) -> String {
    let share = f64::from(s.update_pct) / 100.0;
    match s.update_pct {
        0 => "false".to_owned(),
        100 => "true".to_owned(),
        _ if draws_call_kind(&s.features) => format!("r < {share}"),
        _ => format!("random() < {share}"),
    }
}

fn draws_call_kind(f: &Features) -> bool {
    !f.scan_pct.is_zero() || !f.turnover_pct.is_zero()
}

fn widen_update(f: &Features) -> String {
    match f.update_width {
        0 => String::new(),
        width => fill(sql::WIDER.trim_end(), &[("width", &width.to_string())]),
    }
}

fn build_pieces(slob: &Slob, session: u32) -> Pieces {
    let s = &slob.settings;
    let f = &s.features;
    let mut pieces = Pieces::default();
    if f.visits != KeyDistribution::Uniform {
        pieces.variable("x float8");
        pieces.count("hot", "bigint");
    }
    if f.hot_table.is_some() {
        pieces.variable("in_hot_table boolean");
        pieces.count("hot_table", "bigint");
    }
    if f.update_width > 0 {
        let digests = (SHIFTS + f.update_width).div_ceil(DIGEST_CHARACTERS);
        pieces.variable(&format!(
            "noise CONSTANT text := (SELECT string_agg(rtrim(encode(sha256(convert_to(i::text, 'UTF8')), 'base64'), '='), '') FROM generate_series(1, {digests}) i)"
        ));
    }
    if f.work_loop.is_some() {
        pieces.count("calls", "bigint");
        pieces.call_begins += sql::WORK_LOOP;
    }
    add_other_calls(&mut pieces, slob, session);
    if let Some(think) = &f.think {
        add_think_time(&mut pieces, think, s.commit_every == 1);
    }
    pieces
}

/// Adds scans, inserts and deletes: further branches between the update and the read.
fn add_other_calls(pieces: &mut Pieces, slob: &Slob, session: u32) {
    let s = &slob.settings;
    let f = &s.features;
    if !draws_call_kind(f) {
        return;
    }
    pieces.variable("r float8");
    pieces.call_begins += "        r := random();\n";
    let mut below = f64::from(s.update_pct) / 100.0;
    if !f.scan_pct.is_zero() {
        below += f.scan_pct.share();
        let table = sql::qualified(&slob.schema, tables::SCAN_TABLE);
        pieces.class("scan");
        pieces.count(BLOCKS_SCANNED, "bigint");
        pieces.variable(&format!(
            "scan_blocks CONSTANT bigint := pg_relation_size({}) / current_setting('block_size')::bigint",
            sql::literal(&table)
        ));
        pieces.other_calls += &fill(
            sql::SCAN,
            &[
                ("scan_below", &float(below)),
                ("record_scan", &sql::record("scan", "t0")),
                ("scan_table", &table),
            ],
        );
    }
    if !f.turnover_pct.is_zero() {
        below += 2.0 * f.turnover_pct.share();
        pieces.class("insert");
        pieces.class("delete");
        pieces.count("rows_inserted", "bigint");
        pieces.count("rows_deleted", "bigint");
        pieces.variable("new_filler CONSTANT text := repeat('X', 1024)");
        pieces.variable(
            "turns bigint := coalesce(nullif(current_setting('pgio.turns', true), ''), '0')::bigint",
        );
        pieces.after += "    PERFORM set_config('pgio.turns', turns::text, false);\n";
        pieces.other_calls += &fill(
            sql::TURNOVER,
            &[
                ("turnover_below", &float(below)),
                ("record_insert", &sql::record("insert", "t0")),
                ("record_delete", &sql::record("delete", "t0")),
                ("turnover_table", &sql::qualified(&slob.schema, tables::TURNOVER_TABLE)),
                ("first_key", &tables::first_key(session).to_string()),
                ("depth", &tables::DEPTH.to_string()),
            ],
        );
    }
}

fn add_think_time(pieces: &mut Pieces, think: &Think, release: bool) {
    pieces.count("thinks", "bigint");
    pieces.count("thought_us", "float8");
    pieces.variable("thinks_until float8 := 0");
    pieces.variable("deadline CONSTANT float8 := date_part('epoch', until_at)");
    pieces.before += sql::THINK_ON;
    pieces.after +=
        "    PERFORM set_config('pgio.thinks_until', (thinks_until * 1e6)::bigint::text, false);\n";
    let (shortest, longest) = (think.shortest.as_secs_f64(), think.longest.as_secs_f64());
    pieces.call_ends += &fill(
        sql::THINK,
        &[
            ("think_share", &float(think.pct.share())),
            ("shortest", &float(shortest)),
            ("more", &float(longest - shortest)),
            // A session that rests holds no snapshot.
            ("release", if release { "            COMMIT;" } else { "" }),
        ],
    );
}
