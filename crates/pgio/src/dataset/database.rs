//! The database itself: what it is beside our tables, and making it again.
//!
//! Only one that holds nothing but tables of ours is ever dropped, and only when all that it is can
//! be made again: owner, encoding, locale, tablespace, limits, settings, privileges, comment. The new
//! one is complete under another name before the old one goes, so that whatever stops pgio leaves
//! one of them. Which database may go is the caller's question.

use postgres::Client;

use super::error::DatasetError;
use super::{destroy, mark, sql, verify};

/// All that has to be said to make the database again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    pub name: String,
    owner: String,
    /// Of CREATE DATABASE, after the owner.
    options: String,
    settings: Vec<Setting>,
    /// GRANT statements with `{database}`; absent where the privileges are the default ones.
    grants: Option<Vec<String>>,
    comment: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    /// Absent: for all roles.
    role: Option<String>,
    name: String,
    value: String,
}

/// After the name, while a new database is being made.
const BEING_MADE: &str = "_pgio_new";

/// PostgreSQL cuts longer names.
const LONGEST_NAME: usize = 63;

/// Looks at the session's database, and refuses where something would be lost. `private`: the whole
/// server is ours, so nothing in it is anybody's.
pub fn describe(client: &mut Client, private: bool) -> Result<Database, DatasetError> {
    let failed = |e| DatasetError::from_pg("look at", "the database", e);
    let row = client.query_one(sql::DATABASE, &[]).map_err(failed)?;
    let columns: serde_json::Value = serde_json::from_str(row.get("columns")).unwrap_or_default();
    let name = columns["datname"].as_str().unwrap_or_default().to_owned();
    let refuse = |why: String| DatasetError::NotRecreatable { name: name.clone(), why };
    if !row.get::<_, bool>("owned") || !row.get::<_, Option<bool>>("may_create").unwrap_or(false) {
        return Err(refuse(
            "the role must own it (or be a member of its owner) and have CREATEDB".to_owned(),
        ));
    }
    if columns["datistemplate"] == true {
        return Err(refuse("it is a template".to_owned()));
    }
    if name.len() + BEING_MADE.len() > LONGEST_NAME {
        return Err(refuse("its name leaves no room for a second one beside it".to_owned()));
    }
    if row.get("labelled") {
        return Err(refuse("it has a security label, which cannot be kept".to_owned()));
    }
    let others: i64 = row.get("other_sessions");
    if others > 0 {
        return Err(refuse(format!("{others} other sessions use it: end them first")));
    }
    if !private {
        check_nothing_foreign(client, &name)?;
    }
    let owner: String = row.get("owner");
    let encoding: String = row.get("encoding");
    let tablespace: String = row.get("tablespace");
    Ok(Database {
        options: options(&columns, &encoding, &tablespace),
        settings: settings(client, &name)?,
        grants: grants(client, &name)?,
        comment: row.get("comment"),
        owner,
        name,
    })
}

fn check_nothing_foreign(client: &mut Client, name: &str) -> Result<(), DatasetError> {
    let failed = |e| DatasetError::from_pg("look for", "what else the database holds", e);
    let schema = verify::current_schema(client)?;
    let tables = mark::find(client).map_err(failed)?.into_iter().filter(|n| n.mark.is_some());
    let mut ours: Vec<String> =
        tables.map(|n| sql::qualified(&schema, &n.part.to_string())).collect();
    ours.extend(destroy::tables_of_workloads(client)?);
    let rows = client.query(sql::FOREIGN_OBJECTS, &[&ours]).map_err(failed)?;
    let Some(first) = rows.first() else { return Ok(()) };
    let all: i64 = first.get("all_of_them");
    let named: Vec<String> = rows.iter().map(|r| r.get("what")).collect();
    let more = if all > named.len() as i64 {
        format!(" and {} more", all - named.len() as i64)
    } else {
        String::new()
    };
    Err(DatasetError::NotRecreatable {
        name: name.to_owned(),
        why: format!("it holds what pgio did not make: {}{more}", named.join(", ")),
    })
}

/// By the columns that the server's version has.
fn options(columns: &serde_json::Value, encoding: &str, tablespace: &str) -> String {
    let text = |key: &str| columns[key].as_str();
    let mut options = format!("ENCODING {}", sql::literal(encoding));
    let mut add = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            options += &format!(" {key} {}", sql::literal(value));
        }
    };
    add("LC_COLLATE", text("datcollate"));
    add("LC_CTYPE", text("datctype"));
    // Renamed in 17.
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
    format!("{options} TABLESPACE {} CONNECTION LIMIT {limit}", sql::identifier(tablespace))
}

fn settings(client: &mut Client, database: &str) -> Result<Vec<Setting>, DatasetError> {
    let failed = |e| DatasetError::from_pg("read", "the database's settings", e);
    let rows = client.query(sql::DATABASE_SETTINGS, &[]).map_err(failed)?;
    let setting = |r: &postgres::Row| Setting {
        role: r.get("role"),
        name: r.get("name"),
        value: r.get("value"),
    };
    let settings: Vec<Setting> = rows.iter().map(setting).collect();
    // They are kept by SET … FROM CURRENT, so each must be settable in a session; tried now.
    for s in &settings {
        let mut attempt = client.transaction().map_err(failed)?;
        attempt.query_one(SET_LOCALLY, &[&s.name, &s.value]).map_err(|e| {
            let why = format!("its setting {} cannot be kept: {e}", s.name);
            DatasetError::NotRecreatable { name: database.to_owned(), why }
        })?;
    }
    Ok(settings)
}

const SET_LOCALLY: &str = "SELECT set_config($1, $2, true)";

fn grants(client: &mut Client, database: &str) -> Result<Option<Vec<String>>, DatasetError> {
    let failed = |e| DatasetError::from_pg("read", "the database's privileges", e);
    let rows = client.query(sql::DATABASE_GRANTS, &[]).map_err(failed)?;
    if rows.iter().any(|row| !row.get::<_, bool>("by_owner")) {
        let why = "someone else than its owner granted privileges on it".to_owned();
        return Err(DatasetError::NotRecreatable { name: database.to_owned(), why });
    }
    let grant = |row: &postgres::Row| {
        let (privilege, grantee): (&str, &str) = (row.get("privilege"), row.get("grantee"));
        let option = if row.get("grantable") { " WITH GRANT OPTION" } else { "" };
        format!("GRANT {privilege} ON DATABASE {{database}} TO {grantee}{option}")
    };
    Ok((!rows.is_empty()).then(|| rows.iter().map(grant).collect()))
}

/// Makes it again, empty. `client` is connected to another database of the same server, and nobody
/// to this one.
pub fn recreate(client: &mut Client, database: &Database) -> Result<(), DatasetError> {
    let name = &database.name;
    let failed = |doing: &'static str| move |e| DatasetError::from_pg(doing, name, e);
    let quoted = sql::identifier(name);
    let new = sql::identifier(&format!("{name}{BEING_MADE}"));
    let owner = sql::identifier(&database.owner);
    let options = &database.options;
    client
        .batch_execute(&format!("CREATE DATABASE {new} OWNER {owner} TEMPLATE template0 {options}"))
        .map_err(failed("make anew"))?;
    let made = furnish(client, database, &new).map_err(failed("furnish")).and_then(|()| {
        client.batch_execute(&format!("DROP DATABASE {quoted}")).map_err(failed("drop"))
    });
    if let Err(error) = made {
        // The old one stands; the error says why.
        let _ = client.batch_execute(&format!("DROP DATABASE {new}"));
        return Err(error);
    }
    client
        .batch_execute(&format!("ALTER DATABASE {new} RENAME TO {quoted}"))
        .map_err(failed("give its name back to"))
}

fn furnish(client: &mut Client, database: &Database, new: &str) -> Result<(), postgres::Error> {
    for s in &database.settings {
        let mut transaction = client.transaction()?;
        transaction.query_one(SET_LOCALLY, &[&s.name, &s.value])?;
        let whose = match &s.role {
            None => format!("ALTER DATABASE {new}"),
            Some(role) => format!("ALTER ROLE {} IN DATABASE {new}", sql::identifier(role)),
        };
        transaction
            .batch_execute(&format!("{whose} SET {} FROM CURRENT", setting_name(&s.name)))?;
        transaction.commit()?;
    }
    if let Some(grants) = &database.grants {
        let owner = sql::identifier(&database.owner);
        client.batch_execute(&format!(
            "REVOKE ALL ON DATABASE {new} FROM PUBLIC; REVOKE ALL ON DATABASE {new} FROM {owner}"
        ))?;
        for grant in grants {
            client.batch_execute(&sql::fill(grant, &[("database", new)]))?;
        }
    }
    if let Some(comment) = &database.comment {
        client.batch_execute(&format!("COMMENT ON DATABASE {new} IS {}", sql::literal(comment)))?;
    }
    Ok(())
}

/// A custom setting's name has a dot that must stay one.
fn setting_name(name: &str) -> String {
    name.split('.').map(sql::identifier).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_database_is_is_said_in_its_versions_words() {
        let of = |columns: serde_json::Value| options(&columns, "UTF8", "fast disk");
        let base = json!({"datcollate": "C", "datctype": "de_DE.UTF-8", "datconnlimit": 7});
        let with = |more: serde_json::Value| {
            let mut all = base.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            of(all)
        };
        insta::assert_snapshot!(of(base.clone()), @r#"ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'de_DE.UTF-8' TABLESPACE "fast disk" CONNECTION LIMIT 7"#);
        insta::assert_snapshot!(with(json!({"datlocprovider": "c"})), @r#"ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'de_DE.UTF-8' LOCALE_PROVIDER 'libc' TABLESPACE "fast disk" CONNECTION LIMIT 7"#);
        insta::assert_snapshot!(with(json!({"datlocprovider": "i", "daticulocale": "de", "daticurules": null})), @r#"ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'de_DE.UTF-8' LOCALE_PROVIDER 'icu' ICU_LOCALE 'de' TABLESPACE "fast disk" CONNECTION LIMIT 7"#);
        insta::assert_snapshot!(with(json!({"datlocprovider": "b", "datlocale": "C.UTF-8"})), @r#"ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'de_DE.UTF-8' LOCALE_PROVIDER 'builtin' BUILTIN_LOCALE 'C.UTF-8' TABLESPACE "fast disk" CONNECTION LIMIT 7"#);
    }
}
