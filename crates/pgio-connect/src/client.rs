//! A session whose calls block: `tokio_postgres` on a socket of ours.
//!
//! The thread that calls runs the future of its call and the connection in turn, and waits for the socket
//! with poll(2) while neither can proceed. There is no runtime and no other thread. Ctrl-C ends a wait by
//! shutting down the socket (`interrupt`).
//!
//! Next: `login` opens the session, `stream` is what the driver sees of it.

use std::future::Future;
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::SinkExt;
use rustix::event::PollFlags;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::ToSql;
use tokio_postgres::{
    AsyncMessage, Config, Connection, CopyInSink, Error, NoTls, Row, SimpleQueryMessage, Statement,
    ToStatement,
};

use super::attempt::Attempt;
use super::env::Env;
use super::error::ConnectError;
use super::login::{self, Canceller, Failed, Login};
use super::params::{ConnectParams, NoticeHandler};
use super::resolve::resolve_named;
use super::socket::{Route, Socket};
use super::stream::{Readiness, Stream};

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// An open session.
pub struct Client {
    // Dropped first: then the connection ends the session.
    requests: tokio_postgres::Client,
    driver: Driver,
    canceller: Canceller,
}

impl Client {
    /// Opens a session by a connection string alone, without the environment and its files. Its name is the name of the
    /// string, if any: sessions that are named after pgio count as its own.
    ///
    /// # Errors
    ///
    /// Same as [`super::connect`].
    pub fn connect(conninfo: &str) -> Result<Client, ConnectError> {
        super::connect(&resolve_named(conninfo, &Env::default(), "")?)
    }

    /// Opens a session on the route.
    pub(super) fn open(params: &ConnectParams, route: &Route) -> Result<Client, Failed> {
        Ok(Client::new(login::open(params, route)?, params, route)?)
    }

    pub(super) fn new(
        login: Login,
        params: &ConnectParams,
        route: &Route,
    ) -> Result<Client, ConnectError> {
        let attempt = Attempt { params, route };
        let canceller = Canceller::new(params, route, login.process);
        let socket = login.pipe.socket.clone();
        let (stream, readiness) = Stream::new(login).map_err(|error| attempt.broken(error))?;
        let waker = Waker::from(Arc::clone(&readiness));
        let mut config = Config::new();
        // Encryption and authentication are done.
        config.user(&params.user).ssl_mode(SslMode::Disable);
        let connecting = pin!(config.connect_raw(stream, NoTls));
        let (requests, connection) = match connecting.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(connected) => connected.map_err(|error| attempt.failed(error))?,
            Poll::Pending => return Err(attempt.broken(io::ErrorKind::InvalidData.into())),
        };
        let on_notice = params.on_notice.0.clone();
        let driver = Driver { connection, socket, readiness, waker, on_notice };
        Ok(Client { requests, driver, canceller })
    }

    /// The route by which further sessions go to the same server.
    pub fn route(&self) -> &Route {
        self.canceller.route()
    }

    /// A handle to cancel the session's statement.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    pub fn query(
        &mut self,
        sql: &(impl ToStatement + ?Sized),
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.driver.run(self.requests.query(sql, params))
    }

    pub fn query_one(
        &mut self,
        sql: &(impl ToStatement + ?Sized),
        params: Params<'_>,
    ) -> Result<Row, Error> {
        self.driver.run(self.requests.query_one(sql, params))
    }

    pub fn query_opt(
        &mut self,
        sql: &(impl ToStatement + ?Sized),
        params: Params<'_>,
    ) -> Result<Option<Row>, Error> {
        self.driver.run(self.requests.query_opt(sql, params))
    }

    pub fn execute(
        &mut self,
        sql: &(impl ToStatement + ?Sized),
        params: Params<'_>,
    ) -> Result<u64, Error> {
        self.driver.run(self.requests.execute(sql, params))
    }

    pub fn batch_execute(&mut self, sql: &str) -> Result<(), Error> {
        self.driver.run(self.requests.batch_execute(sql))
    }

    pub fn simple_query(&mut self, sql: &str) -> Result<Vec<SimpleQueryMessage>, Error> {
        self.driver.run(self.requests.simple_query(sql))
    }

    pub fn prepare(&mut self, sql: &str) -> Result<Statement, Error> {
        self.driver.run(self.requests.prepare(sql))
    }

    pub fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        self.begin("BEGIN")
    }

    /// Begins a transaction by this statement.
    pub fn begin(&mut self, sql: &str) -> Result<Transaction<'_>, Error> {
        self.batch_execute(sql)?;
        Ok(Transaction { client: self, is_over: false })
    }

    pub fn copy_in(&mut self, sql: &str) -> Result<CopyIn<'_>, Error> {
        let sink = Box::pin(self.driver.run(self.requests.copy_in(sql))?);
        Ok(CopyIn { driver: &mut self.driver, sink, buffer: BytesMut::new() })
    }

    /// Whether the connection is known to have ended.
    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Whether the server answers within the limit.
    pub fn is_valid(&mut self, limit: Duration) -> bool {
        let answer = self.requests.simple_query("");
        matches!(self.driver.run_until(Some(Instant::now() + limit), answer), Some(Ok(_)))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("route", self.route()).finish_non_exhaustive()
    }
}

/// The connection, and how to wait for it.
struct Driver {
    connection: Connection<Stream, NoTlsStream>,
    socket: Socket,
    readiness: Arc<Readiness>,
    waker: Waker,
    on_notice: Option<NoticeHandler>,
}

impl Driver {
    fn run<T>(&mut self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.run_until(None, future).expect("a wait without a deadline does not time out")
    }

    /// Runs a call until its end; `None` after the deadline.
    fn run_until<T>(
        &mut self,
        deadline: Option<Instant>,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Option<Result<T, Error>> {
        let mut future = pin!(future);
        loop {
            if let Err(error) = self.proceed() {
                return Some(Err(error));
            }
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&self.waker))
            {
                return Some(result);
            }
            if self.readiness.take_woken() {
                continue;
            }
            let full = if self.readiness.is_full() { PollFlags::OUT } else { PollFlags::empty() };
            match self.socket.wait(PollFlags::IN | full, deadline) {
                Ok(came) if came == PollFlags::OUT => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return None,
                // The next read returns bytes, or the error.
                _ => self.readiness.set_readable(),
            }
        }
    }

    /// Sends and receives as much as is possible without waiting.
    fn proceed(&mut self) -> Result<(), Error> {
        loop {
            match self.connection.poll_message(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                    if let Some(handler) = &self.on_notice {
                        handler(notice.routine().unwrap_or_default());
                    }
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Err(error),
                Poll::Ready(None) | Poll::Pending => return Ok(()),
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Sends Terminate; if that fails, closing the socket has the same effect.
        let _ = self.proceed();
    }
}

/// A transaction, rolled back when dropped.
#[derive(Debug)]
pub struct Transaction<'a> {
    client: &'a mut Client,
    is_over: bool,
}

impl Transaction<'_> {
    pub fn commit(self) -> Result<(), Error> {
        self.end("COMMIT")
    }

    pub fn rollback(self) -> Result<(), Error> {
        self.end("ROLLBACK")
    }

    fn end(mut self, sql: &str) -> Result<(), Error> {
        self.is_over = true;
        self.client.batch_execute(sql)
    }
}

impl Deref for Transaction<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // If it fails, the session has ended and the transaction with it.
            let _ = self.client.batch_execute("ROLLBACK");
        }
    }
}

/// A COPY FROM STDIN, canceled unless it is finished.
pub struct CopyIn<'a> {
    driver: &'a mut Driver,
    sink: Pin<Box<CopyInSink<Bytes>>>,
    buffer: BytesMut,
}

/// Bytes of one CopyData message.
const COPY_BYTES: usize = 4096;

impl CopyIn<'_> {
    /// Ends the COPY; returns the number of rows.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.send()?;
        self.driver.run(self.sink.as_mut().finish())
    }

    fn send(&mut self) -> Result<(), Error> {
        match self.buffer.split().freeze() {
            bytes if bytes.is_empty() => Ok(()),
            bytes => self.driver.run(self.sink.send(bytes)),
        }
    }
}

impl Write for CopyIn<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() > COPY_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send().map_err(io::Error::other)
    }
}

impl std::fmt::Debug for CopyIn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CopyIn")
    }
}
