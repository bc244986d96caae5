//! Re-creates the database with the same attributes.
//!
//! pgio drops a database only if it contains nothing but pgio's tables and all its attributes can be
//! restored: owner, encoding, locale, tablespace, limits, settings, privileges, comment. The new
//! database is complete under another name before the two exchange names in one transaction, so that the
//! name always exists. What a kill leaves has one of [`Database::leftovers`]. Callers decide which
//! database may be dropped, and journal that.

use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::{Client, Row};

use super::error::DatasetError;
use super::{destroy, mark, verify};
use crate::config::value::MAX_IDENTIFIER;
use crate::pg::words::Shown;

/// The attributes that are required to re-create a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    pub name: String,
    owner: String,
    /// Options of CREATE DATABASE after the owner.
    options: String,
    settings: Vec<Setting>,
    /// GRANT statements with `{database}`; absent if the privileges are the defaults, empty if all were revoked.
    grants: Option<Vec<String>>,
    comment: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    /// Absent: applies to all roles.
    role: Option<String>,
    name: String,
    value: String,
}

/// Suffixes of the new database's name until it is complete, and of the old one's afterwards.
const NEW_SUFFIX: &str = "_pgio_new";
const OLD_SUFFIX: &str = "_pgio_old";

/// How long a session of someone else may take to end.
const SESSION_EXIT: Duration = Duration::from_secs(2);

impl Database {
    /// The names of databases that exist only while it is being re-created.
    pub fn leftovers(&self) -> [String; 2] {
        [NEW_SUFFIX, OLD_SUFFIX].map(|suffix| format!("{}{suffix}", self.name))
    }
}

/// Reads the attributes of the session's database, and refuses if something would be lost. With
/// `private`, the whole server belongs to pgio, so there is no user data.
pub fn describe(client: &mut Client, private: bool) -> Result<Database, DatasetError> {
    let failed = |e| DatasetError::from_pg("inspect", "the database", e);
    let row = without_ending_sessions(client).map_err(failed)?;
    let columns: serde_json::Value =
        serde_json::from_str(row.try_get("columns")?).unwrap_or_default();
    let name = columns["datname"].as_str().unwrap_or_default().to_owned();
    let refuse = |why: String| DatasetError::NotRecreatable { name: name.clone(), why };
    if !row.try_get::<_, bool>("owned")?
        || !row.try_get::<_, Option<bool>>("may_create")?.unwrap_or(false)
    {
        return Err(refuse(
            "the role must own it (or be a member of the owning role) and have CREATEDB".to_owned(),
        ));
    }
    if columns["datistemplate"] == true {
        return Err(refuse("it is a template".to_owned()));
    }
    if name.len() + NEW_SUFFIX.len() > MAX_IDENTIFIER {
        return Err(refuse("its name is too long to append a suffix".to_owned()));
    }
    for other in [NEW_SUFFIX, OLD_SUFFIX].map(|suffix| format!("{name}{suffix}")) {
        let ask = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)";
        if client.query_one(ask, &[&other]).and_then(|row| row.try_get(0)).map_err(failed)? {
            return Err(refuse(format!(
                "its new or old copy would be named {other}, and there is a database of that name: run `pgio undo` if it is pgio's, else rename it"
            )));
        }
    }
    if row.try_get("labeled")? {
        return Err(refuse("it has a security label, which pgio cannot restore".to_owned()));
    }
    let others: i64 = row.try_get("other_sessions")?;
    if others > 0 {
        return Err(refuse(format!("other sessions are connected ({others}); end them first")));
    }
    if !private {
        check_foreign_objects(client, &name)?;
    }
    let owner: String = row.try_get("owner")?;
    let encoding: String = row.try_get("encoding")?;
    let tablespace: String = row.try_get("tablespace")?;
    Ok(Database {
        options: options(&columns, &encoding, &tablespace),
        settings: settings(client, &name)?,
        grants: grants(client, &name, &columns["datacl"])?,
        comment: row.try_get("comment")?,
        owner,
        name,
    })
}

/// Reads the attributes again while sessions may be ending: a server process exits shortly after its
/// connection is closed. DROP DATABASE waits in the same way.
fn without_ending_sessions(client: &mut Client) -> Result<Row, pgio_connect::Error> {
    let begun = Instant::now();
    loop {
        let row = client.query_one(super::DATABASE, &[])?;
        if row.try_get::<_, i64>("other_sessions")? == 0 || begun.elapsed() >= SESSION_EXIT {
            return Ok(row);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn check_foreign_objects(client: &mut Client, name: &str) -> Result<(), DatasetError> {
    let failed = |e| DatasetError::from_pg("find", "other objects in the database", e);
    let schema = verify::current_schema(client)?;
    let tables = mark::find(client).map_err(failed)?.into_iter().filter(|n| n.mark.is_some());
    let mut ours: Vec<String> =
        tables.map(|n| super::qualified(&schema, &n.part.to_string())).collect();
    ours.extend(destroy::workload_tables(client)?);
    let rows = client.query(super::FOREIGN_OBJECTS, &[&ours]).map_err(failed)?;
    let Some(first) = rows.first() else { return Ok(()) };
    let all: i64 = first.try_get("all_of_them")?;
    let named: Result<Vec<Shown>, _> = rows.iter().map(|row| row.try_get("what")).collect();
    let named: Vec<String> = named?.into_iter().map(String::from).collect();
    let more = if all > named.len() as i64 {
        format!(" and {} more", all - named.len() as i64)
    } else {
        String::new()
    };
    Err(DatasetError::NotRecreatable {
        name: name.to_owned(),
        why: format!("it contains objects that pgio did not create: {}{more}", named.join(", ")),
    })
}

/// Returns the options, depending on the columns that this server version has.
fn options(columns: &serde_json::Value, encoding: &str, tablespace: &str) -> String {
    let text = |key: &str| columns[key].as_str();
    let mut options = format!("ENCODING {}", super::literal(encoding));
    let mut add = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            options += &format!(" {key} {}", super::literal(value));
        }
    };
    add("LC_COLLATE", text("datcollate"));
    add("LC_CTYPE", text("datctype"));
    // The column was renamed in version 17.
    let locale = text("datlocale").or(text("daticulocale"));
    match text("datlocprovider") {
        Some("i") => {
            add("LOCALE_PROVIDER", Some("icu"));
            add("ICU_LOCALE", locale);
            add("ICU_RULES", text("daticurules"));
        }
        Some("b") => {
            add("LOCALE_PROVIDER", Some("builtin"));
            add("BUILTIN_LOCALE", locale);
        }
        Some(_) => add("LOCALE_PROVIDER", Some("libc")),
        None => {}
    }
    let limit = columns["datconnlimit"].as_i64().unwrap_or(-1);
    format!("{options} TABLESPACE {} CONNECTION LIMIT {limit}", super::identifier(tablespace))
}

fn settings(client: &mut Client, database: &str) -> Result<Vec<Setting>, DatasetError> {
    let failed = |e| DatasetError::from_pg("read", "the database's settings", e);
    let rows = client.query(super::DATABASE_SETTINGS, &[]).map_err(failed)?;
    let setting = |r: &Row| -> Result<Setting, pgio_connect::Error> {
        let (role, name, value) = (r.try_get("role")?, r.try_get("name")?, r.try_get("value")?);
        Ok(Setting { role, name, value })
    };
    let settings: Vec<Setting> = rows.iter().map(setting).collect::<Result<_, _>>()?;
    // `recreate` uses SET … FROM CURRENT, so check that a session can set each of them.
    for s in &settings {
        let mut attempt = client.transaction().map_err(failed)?;
        attempt.query_one(SET_LOCALLY, &[&s.name, &s.value]).map_err(|e| {
            let why = format!("its setting {} cannot be restored: {e}", s.name);
            DatasetError::NotRecreatable { name: database.to_owned(), why }
        })?;
    }
    Ok(settings)
}

const SET_LOCALLY: &str = "SELECT set_config($1, $2, true)";

/// Returns the statements that restore the privileges. `acl` is null if these are the defaults, and an empty
/// array if all were revoked; the query returns no row for either.
fn grants(
    client: &mut Client,
    database: &str,
    acl: &serde_json::Value,
) -> Result<Option<Vec<String>>, DatasetError> {
    if acl.is_null() {
        return Ok(None);
    }
    let failed = |e| DatasetError::from_pg("read", "the database's privileges", e);
    let rows = client.query(super::DATABASE_GRANTS, &[]).map_err(failed)?;
    if rows.iter().any(|row| !row.try_get::<_, bool>("by_owner").unwrap_or(false)) {
        let why = "a role other than its owner granted privileges on it".to_owned();
        return Err(DatasetError::NotRecreatable { name: database.to_owned(), why });
    }
    let grant = |row: &Row| -> Result<String, pgio_connect::Error> {
        let (privilege, grantee): (&str, &str) =
            (row.try_get("privilege")?, row.try_get("grantee")?);
        let option = if row.try_get("grantable")? { " WITH GRANT OPTION" } else { "" };
        Ok(format!("GRANT {privilege} ON DATABASE {{database}} TO {grantee}{option}"))
    };
    Ok(Some(rows.iter().map(grant).collect::<Result<_, _>>()?))
}

/// Re-creates the database, empty. `client` must be connected to another database of the same server,
/// and no session may be connected to this one.
pub fn recreate(client: &mut Client, database: &Database) -> Result<(), DatasetError> {
    let name = &database.name;
    let failed = |doing: &'static str| move |e| DatasetError::from_pg(doing, name, e);
    let quoted = super::identifier(name);
    let [new, old] = database.leftovers().map(|name| super::identifier(&name));
    let owner = super::identifier(&database.owner);
    let options = &database.options;
    client
        .batch_execute(&format!("CREATE DATABASE {new} OWNER {owner} TEMPLATE template0 {options}"))
        .map_err(failed("re-create"))?;
    let exchange = format!(
        "BEGIN; ALTER DATABASE {quoted} RENAME TO {old}; ALTER DATABASE {new} RENAME TO {quoted}; COMMIT"
    );
    let replaced = apply_attributes(client, database, &new)
        .map_err(failed("set the attributes of"))
        .and_then(|()| client.batch_execute(&exchange).map_err(failed("rename")));
    if let Err(error) = replaced {
        // The old database still has its name; the error contains the reason.
        let _ = client.batch_execute("ROLLBACK");
        let _ = client.batch_execute(&format!("DROP DATABASE {new}"));
        return Err(error);
    }
    client.batch_execute(&format!("DROP DATABASE {old}")).map_err(failed("drop the former"))
}

fn apply_attributes(
    client: &mut Client,
    database: &Database,
    new: &str,
) -> Result<(), pgio_connect::Error> {
    for s in &database.settings {
        let mut transaction = client.transaction()?;
        transaction.query_one(SET_LOCALLY, &[&s.name, &s.value])?;
        let scope = match &s.role {
            None => format!("ALTER DATABASE {new}"),
            Some(role) => format!("ALTER ROLE {} IN DATABASE {new}", super::identifier(role)),
        };
        transaction
            .batch_execute(&format!("{scope} SET {} FROM CURRENT", setting_name(&s.name)))?;
        transaction.commit()?;
    }
    if let Some(grants) = &database.grants {
        let owner = super::identifier(&database.owner);
        client.batch_execute(&format!(
            "REVOKE ALL ON DATABASE {new} FROM PUBLIC; REVOKE ALL ON DATABASE {new} FROM {owner}"
        ))?;
        for grant in grants {
            client.batch_execute(&super::fill(grant, &[("database", new)]))?;
        }
    }
    if let Some(comment) = &database.comment {
        client
            .batch_execute(&format!("COMMENT ON DATABASE {new} IS {}", super::literal(comment)))?;
    }
    Ok(())
}

/// Quotes the name of a setting; the dot of a custom setting must not be quoted.
fn setting_name(name: &str) -> String {
    name.split('.').map(super::identifier).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_depend_on_the_server_version() {
        let clauses = |columns: serde_json::Value| options(&columns, "UTF8", "fast disk");
        let base = json!({"datcollate": "C", "datctype": "de_DE.UTF-8", "datconnlimit": 7});
        let with = |more: serde_json::Value| {
            let mut all = base.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            clauses(all)
        };
        insta::assert_snapshot!(clauses(base.clone()), @r#"ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'de_DE.UTF-8' TABLESPACE "fast disk" CONNECTION LIMIT 7"#);
        insta::assert_snapshot!(with(json!({"datlocprovider": "c"})), @r#"ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'de_DE.UTF-8' LOCALE_PROVIDER 'libc' TABLESPACE "fast disk" CONNECTION LIMIT 7"#);
        insta::assert_snapshot!(with(json!({"datlocprovider": "i", "daticulocale": "de", "daticurules": null})), @r#"ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'de_DE.UTF-8' LOCALE_PROVIDER 'icu' ICU_LOCALE 'de' TABLESPACE "fast disk" CONNECTION LIMIT 7"#);
        insta::assert_snapshot!(with(json!({"datlocprovider": "b", "datlocale": "C.UTF-8"})), @r#"ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'de_DE.UTF-8' LOCALE_PROVIDER 'builtin' BUILTIN_LOCALE 'C.UTF-8' TABLESPACE "fast disk" CONNECTION LIMIT 7"#);
    }
}
