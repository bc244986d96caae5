//! For tests: a client whose server is a table of answers, in this process.
//!
//! The code under test sends real statements over a socket pair; what a server would do with them is
//! not proved. Next: [`client`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use bytes::BytesMut;
use tokio_postgres::types::{ToSql, Type};

use crate::client::Client;
use crate::env::Env;
use crate::limits::Guard;
use crate::login::{AUTHENTICATION_OK, Login};
use crate::resolve;
use crate::socket::{Encryption, Pipe, Route, Socket};

/// The server's answer to a statement.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Rows of columns with these types.
    Rows(Vec<Type>, Vec<Vec<Value>>),
    /// Success without rows.
    Done,
    /// SQLSTATE and message.
    Error(&'static str, String),
    /// The connection ends.
    Closed,
}

/// One value of an answer.
#[derive(Debug, Clone)]
pub enum Value {
    Null,
    Bool(bool),
    Int4(i32),
    Int8(i64),
    Float8(f64),
    Text(String),
}

impl Answer {
    /// One row; a column's type follows from its value, and is text of NULL text.
    pub fn row(values: Vec<Value>) -> Answer {
        Answer::rows(vec![values])
    }

    /// Rows of at least one; types as in [`Answer::row`] of the first.
    pub fn rows(rows: Vec<Vec<Value>>) -> Answer {
        Answer::Rows(rows[0].iter().map(Value::type_).collect(), rows)
    }
}

impl Value {
    fn type_(&self) -> Type {
        match self {
            Value::Bool(_) => Type::BOOL,
            Value::Int4(_) => Type::INT4,
            Value::Int8(_) => Type::INT8,
            Value::Float8(_) => Type::FLOAT8,
            Value::Null | Value::Text(_) => Type::TEXT,
        }
    }

    fn bytes(&self, is_binary: bool) -> Option<Vec<u8>> {
        let mut binary = BytesMut::new();
        let (written, text) = match self {
            Value::Null => return None,
            Value::Bool(v) => (v.to_sql(&Type::BOOL, &mut binary), v.to_string()[..1].to_owned()),
            Value::Int4(v) => (v.to_sql(&Type::INT4, &mut binary), v.to_string()),
            Value::Int8(v) => (v.to_sql(&Type::INT8, &mut binary), v.to_string()),
            Value::Float8(v) => (v.to_sql(&Type::FLOAT8, &mut binary), v.to_string()),
            Value::Text(v) => (v.to_sql(&Type::TEXT, &mut binary), v.clone()),
        };
        written.expect("numbers and texts have a binary form");
        Some(if is_binary { binary.to_vec() } else { text.into_bytes() })
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// A client of a server that answers each statement as the first entry whose text it begins with, and
/// any other with an error that quotes it. Parameters (`$1`) are taken for text, or for what the cast
/// behind them names (`$1::bigint`).
pub fn client(answers: Vec<(&'static str, Answer)>) -> Client {
    client_by(move |sql| {
        let found = answers.iter().find(|(prefix, _)| sql.trim_start().starts_with(prefix));
        found.map(|(_, answer)| answer.clone())
    })
}

/// A client of a server that answers by a function of the statement, which is called when it is sent or
/// prepared.
pub fn client_by(answer: impl FnMut(&str) -> Option<Answer> + Send + 'static) -> Client {
    let (near, far) = UnixStream::pair().expect("a socket pair");
    let server = Server {
        stream: far,
        answer: Box::new(answer),
        prepared: BTreeMap::new(),
        bound: Answer::Done,
        has_failed: false,
    };
    // Ends with the client; an error means that the client has left.
    thread::spawn(move || drop(server.serve()));
    let params = resolve("host=/scripted user=u dbname=d", &Env::default());
    let params = params.expect("a complete connection string");
    let endpoint = params.hosts[0].clone();
    let route = Route { endpoint, address: None, encryption: Encryption::Off };
    let answer = [AUTHENTICATION_OK, &message(b'Z', b"I")].concat();
    let login = Login {
        pipe: Pipe::plain(Socket::from(OwnedFd::from(near))),
        guard: Guard::new(),
        answer: BytesMut::from(&*answer),
        rest: BytesMut::new(),
        process: (1, 2),
    };
    Client::new(login, &params, &route).expect("the login has been answered")
}

type Script = dyn FnMut(&str) -> Option<Answer> + Send;

struct Server {
    stream: UnixStream,
    answer: Box<Script>,
    /// Prepared statements by name: parameters and answer.
    prepared: BTreeMap<Vec<u8>, (Vec<Type>, Answer)>,
    bound: Answer,
    /// After an error, messages are ignored until Sync.
    has_failed: bool,
}

impl Server {
    fn serve(mut self) -> io::Result<()> {
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; length as usize - 4];
            self.stream.read_exact(&mut body)?;
            let Some(reply) = self.reply(head[0], &body) else { return Ok(()) };
            self.stream.write_all(&reply)?;
        }
    }

    /// The reply to one message; `None` ends the connection.
    fn reply(&mut self, tag: u8, body: &[u8]) -> Option<Vec<u8>> {
        let mut texts = body.split(|byte| *byte == 0);
        let mut next = || texts.next().unwrap_or_default();
        match tag {
            b'S' => {
                self.has_failed = false;
                Some(message(b'Z', b"I"))
            }
            b'Q' => match self.find(next()) {
                Answer::Closed => None,
                Answer::Error(code, text) => {
                    Some([error(code, &text), message(b'Z', b"I")].concat())
                }
                answer => {
                    let columns = columns(&answer).unwrap_or_default();
                    Some([columns, rows(&answer, false), message(b'Z', b"I")].concat())
                }
            },
            _ if self.has_failed => Some(Vec::new()),
            b'P' => {
                let (name, sql) = (next().to_vec(), next());
                let answer = self.find(sql);
                if let Answer::Error(code, text) = answer {
                    self.has_failed = true;
                    return Some(error(code, &text));
                }
                self.prepared.insert(name, (parameters(&String::from_utf8_lossy(sql)), answer));
                Some(message(b'1', b""))
            }
            b'D' => {
                let (types, answer) = self.prepared.get(&next()[1..])?;
                let parameters = types.iter().flat_map(|t| t.oid().to_be_bytes());
                let parameters = message(b't', &counted(types.len(), parameters.collect()));
                let columns = columns(answer).unwrap_or_else(|| message(b'n', b""));
                Some([parameters, columns].concat())
            }
            b'B' => {
                let (_portal, name) = (next(), next());
                self.bound = self.prepared.get(name)?.1.clone();
                Some(message(b'2', b""))
            }
            b'E' if matches!(self.bound, Answer::Closed) => None,
            b'E' => Some(rows(&self.bound, true)),
            b'C' => Some(message(b'3', b"")),
            _ => None,
        }
    }

    fn find(&mut self, sql: &[u8]) -> Answer {
        let sql = String::from_utf8_lossy(sql);
        let missing = || Answer::Error("XX000", format!("no answer is scripted for: {sql}"));
        (self.answer)(&sql).unwrap_or_else(missing)
    }
}

/// The types of `$1`, `$2` and so on.
fn parameters(sql: &str) -> Vec<Type> {
    let type_of = |number: usize| {
        let (_, cast) = sql.split_once(&format!("${number}"))?;
        let end = |c: char| !(c.is_alphanumeric() || c == '_' || c == '.');
        let name = cast.strip_prefix("::").and_then(|cast| cast.split(end).next());
        Some(match name.map(|name| name.trim_start_matches("pg_catalog.")) {
            Some("bool" | "boolean") => Type::BOOL,
            Some("int4" | "int" | "integer") => Type::INT4,
            Some("int8" | "bigint") => Type::INT8,
            Some("float8") => Type::FLOAT8,
            _ => Type::TEXT,
        })
    };
    (1..).map_while(type_of).collect()
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

fn counted(count: usize, bytes: Vec<u8>) -> Vec<u8> {
    [(count as u16).to_be_bytes().to_vec(), bytes].concat()
}

fn error(code: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0VERROR\0C{code}\0M{text}\0\0").as_bytes())
}

/// RowDescription; `None` for an answer without rows.
fn columns(answer: &Answer) -> Option<Vec<u8>> {
    let Answer::Rows(types, _) = answer else { return None };
    let mut fields = Vec::new();
    for column in types {
        // Name, table, number, type, size, modifier, format.
        fields.extend_from_slice(b"column\0\0\0\0\0\0\0");
        fields.extend(column.oid().to_be_bytes());
        fields.extend_from_slice(b"\xff\xff\xff\xff\xff\xff\0\0");
    }
    Some(message(b'T', &counted(types.len(), fields)))
}

/// The rows, and what completes the statement.
fn rows(answer: &Answer, is_binary: bool) -> Vec<u8> {
    let rows = if let Answer::Rows(_, rows) = answer { rows.as_slice() } else { &[] };
    let mut bytes = Vec::new();
    for row in rows {
        let mut fields = Vec::new();
        for value in row {
            let value = value.bytes(is_binary);
            let length = value.as_ref().map_or(-1, |value| value.len() as i32);
            fields.extend(length.to_be_bytes());
            fields.extend(value.unwrap_or_default());
        }
        bytes.extend(message(b'D', &counted(row.len(), fields)));
    }
    bytes.extend(message(b'C', format!("SELECT {}\0", rows.len()).as_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_postgres::SimpleQueryMessage;
    use tokio_postgres::error::SqlState;

    fn scripted() -> Client {
        let row = vec![Value::Int8(7), "x".into(), Value::Null, Value::Bool(true)];
        client(vec![
            ("SELECT a", Answer::row(row)),
            ("SELECT b", Answer::Rows(vec![Type::INT4], Vec::new())),
            ("DROP", Answer::Error("42501", "must be owner".to_owned())),
            ("QUIT", Answer::Closed),
            ("", Answer::Done),
        ])
    }

    #[test]
    fn statements_are_answered_from_the_table() {
        let mut client = scripted();
        let row = client.query_one("SELECT a WHERE b = $1 AND c = $2::int8", &[&"x", &3_i64]);
        let row = row.unwrap();
        assert_eq!(row.get::<_, i64>(0), 7);
        assert_eq!(row.get::<_, Option<String>>(1).as_deref(), Some("x"));
        assert_eq!(row.get::<_, Option<String>>(2), None);
        assert!(row.get::<_, bool>(3));
        assert!(client.query_opt("SELECT b", &[]).unwrap().is_none());
        let answers = client.simple_query("SELECT a").unwrap();
        let texts = answers.iter().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => Some([0, 1, 2, 3].map(|at| row.get(at))),
            _ => None,
        });
        assert_eq!(texts, Some([Some("7"), Some("x"), None, Some("t")]));
        for error in [client.batch_execute("DROP x").err(), client.execute("DROP x", &[]).err()] {
            assert_eq!(error.unwrap().code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
        }
        assert!(client.is_valid(std::time::Duration::from_secs(10)));
        let unknown = super::client(Vec::new()).batch_execute("SELECT z").unwrap_err();
        assert!(unknown.as_db_error().unwrap().message().ends_with("scripted for: SELECT z"));
    }

    #[test]
    fn a_lost_connection_is_an_error_of_each_later_call() {
        let mut client = scripted();
        assert!(client.batch_execute("QUIT").unwrap_err().is_closed());
        assert!(client.is_closed());
        assert!(client.query("SELECT a", &[]).unwrap_err().is_closed());
        assert!(!client.is_valid(std::time::Duration::from_secs(10)));
    }

    #[test]
    fn a_transaction_that_is_not_committed_is_rolled_back() {
        let (seen, texts) = std::sync::mpsc::channel();
        let mut client = client_by(move |sql| {
            seen.send(sql.to_owned()).ok()?;
            Some(Answer::Done)
        });
        client.transaction().unwrap().commit().unwrap();
        client.transaction().unwrap().rollback().unwrap();
        client.transaction().unwrap().batch_execute("SELECT 1").unwrap();
        drop(client);
        let seen: Vec<String> = texts.iter().collect();
        let expected = ["BEGIN", "COMMIT", "BEGIN", "ROLLBACK", "BEGIN", "SELECT 1", "ROLLBACK"];
        assert_eq!(seen, expected);
    }
}
