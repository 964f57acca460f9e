//! Files at `s3://`, `http(s)://` and `hdfs://` addresses, read in ranges. A store is asked from the thread that reads, on a
//! small runtime of its own; requests that fail in passing are repeated within a deadline.
//!
//! Credentials come from whoever calls [`configure`], which the command line does once with the `AWS_*` and `HADOOP_*`
//! variables of its environment; they are never written anywhere, and an address that carries some is refused.

mod bucket;
#[cfg(feature = "hdfs")]
mod hdfs;
mod objects;

pub use bucket::{Bucket, Put};

use starlings_core::{Fault, Result};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Bytes asked for at a time.
const RANGE_BYTES: u64 = 4 << 20;
/// A request ends after this long, its repetitions included.
const DEADLINE: Duration = Duration::from_secs(120);

static SETTINGS: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Says by which settings stores are reached: keys, region, endpoint. The first call counts.
pub fn configure(settings: impl IntoIterator<Item = (String, String)>) {
    let mut settings = Some(settings);
    SETTINGS.get_or_init(|| settings.take().into_iter().flatten().collect());
}

fn settings() -> impl Iterator<Item = &'static (String, String)> {
    SETTINGS.get().into_iter().flatten()
}

/// Whether an address is one of these.
pub(crate) fn is_remote(place: &str) -> bool {
    let schemes = ["s3://", "http://", "https://"];
    let hadoop = cfg!(feature = "hdfs") && place.starts_with("hdfs://");
    hadoop || schemes.iter().any(|scheme| place.starts_with(scheme))
}

/// A store of files. Keys have `/` between their parts and none in front.
trait Files: Send + Sync {
    /// The size of a file.
    fn size(&self, key: &str) -> Result<u64, Refusal>;

    /// Some bytes of a file.
    fn range(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>, Refusal>;

    /// Keys and sizes of the files right below a folder.
    fn below(&self, folder: &str) -> Result<Vec<(String, u64)>, Refusal>;
}

/// Why a store gives nothing.
#[derive(Debug)]
enum Refusal {
    Absent,
    Forbidden,
    Other(String),
}

/// A file at an address.
pub(crate) struct Remote {
    address: String,
    files: Arc<dyn Files>,
    key: String,
    size: u64,
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.address)
    }
}

/// The files that an address means: one, all below `…/`, or those that match a pattern in the last part.
pub(crate) fn open(address: &str) -> Result<Vec<Arc<Remote>>> {
    let (root, key) = split(address)?;
    let files = files(&root)?;
    let remote = |key: String, size: u64| {
        let (address, files) = (format!("{root}/{key}"), files.clone());
        Arc::new(Remote { address, files, key, size })
    };
    let (folder, last) = key.rsplit_once('/').unwrap_or(("", &key));
    if !last.is_empty() && !last.contains(['*', '?', '[']) {
        let size = files.size(&key).map_err(|refusal| failed(address, refusal))?;
        return Ok(vec![remote(key, size)]);
    }
    let pattern = match last.is_empty() {
        true => None,
        false => Some(glob::Pattern::new(last).map_err(|error| {
            Fault::caller(format!("{address} is not a pattern of names")).caused_by(error)
        })?),
    };
    let mut found = files.below(folder).map_err(|refusal| failed(address, refusal))?;
    found.retain(|(key, _)| {
        let name = key.rsplit('/').next().unwrap_or_default();
        let hidden = name.is_empty() || name.starts_with(['.', '_']);
        !hidden && pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    });
    found.sort();
    match found.is_empty() {
        false => Ok(found.into_iter().map(|(key, size)| remote(key, size)).collect()),
        true => Err(Fault::caller(format!("{address}: there are no files"))
            .hint("files right below the folder are read, hidden ones and other folders are not")),
    }
}

fn files(root: &str) -> Result<Arc<dyn Files>> {
    #[cfg(feature = "hdfs")]
    if root.starts_with("hdfs://") {
        return Ok(Arc::new(hdfs::Hadoop::at(root)?));
    }
    Ok(Arc::new(objects::Store::at(root)?))
}

/// `s3://bucket` and `key`, or `https://host` and `path`.
fn split(address: &str) -> Result<(String, String)> {
    let wrong = |what: &str| Fault::caller(format!("the address of the data {what}"));
    let (scheme, rest) = address.split_once("://").ok_or_else(|| wrong("has no scheme"))?;
    let (host, key) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains('@') {
        return Err(wrong("carries a name or a password").hint(
            "leave them out: keys for s3:// come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ));
    }
    if host.is_empty() || key.is_empty() && scheme != "s3" {
        return Err(Fault::caller(format!("{address} names no file")).hint(
            "such as s3://bucket/folder/train.csv, https://host/train.csv or hdfs://namenode:9000/train.csv",
        ));
    }
    Ok((format!("{scheme}://{host}"), key.to_string()))
}

/// A runtime for the thread that asks.
fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Fault::machine(error.to_string()))
}

/// Waits for an answer of the store, but not for ever; `None` when the time is up.
fn wait<T>(runtime: &Runtime, answer: impl Future<Output = T>) -> Option<T> {
    let timed = async { tokio::time::timeout(DEADLINE, answer).await };
    runtime.block_on(timed).ok()
}

fn failed(address: &str, refusal: Refusal) -> Fault {
    match refusal {
        Refusal::Absent => Fault::caller(format!("there is no file {address}"))
            .hint("see that bucket or host, folder and name are right"),
        Refusal::Forbidden => {
            let fault = Fault::caller(format!("the store does not let us read {address}"));
            match address.starts_with("s3://") {
                true => fault.hint(
                    "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, on workers elsewhere too",
                ),
                false => fault.hint("ask whoever keeps the store for the right to read it"),
            }
        }
        Refusal::Other(what) => Fault::machine(format!("cannot read {address}")).caused_by(what),
    }
}

impl Remote {
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Some bytes; fewer at the end.
    pub(crate) fn range(&self, from: u64, length: u64) -> io::Result<Vec<u8>> {
        let to = from.saturating_add(length).min(self.size);
        if from >= to {
            return Ok(Vec::new());
        }
        let bytes = self.files.range(&self.key, from..to);
        let bytes = bytes.map_err(|refusal| io::Error::other(failed(&self.address, refusal)))?;
        match bytes.len() as u64 == to - from {
            true => Ok(bytes),
            false => Err(io::Error::other(format!(
                "{} answered {} bytes instead of {}",
                self.address,
                bytes.len(),
                to - from
            ))),
        }
    }
}

/// Reads a file at an address from any byte on.
pub(crate) struct Reader {
    remote: Arc<Remote>,
    /// Where the next range begins.
    next: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were given away.
    given: usize,
}

impl Reader {
    pub(crate) fn new(remote: Arc<Remote>) -> Reader {
        Reader { remote, next: 0, buffer: Vec::new(), given: 0 }
    }

    /// Goes on at this byte.
    pub(crate) fn seek(&mut self, byte: u64) {
        (self.next, self.given) = (byte, 0);
        self.buffer.clear();
    }

    /// Goes forward.
    pub(crate) fn skip(&mut self, bytes: u64) {
        let at = self.next - (self.buffer.len() - self.given) as u64;
        self.seek(at.saturating_add(bytes));
    }
}

impl io::Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.given == self.buffer.len() {
            self.buffer = self.remote.range(self.next, RANGE_BYTES)?;
            self.next += self.buffer.len() as u64;
            self.given = 0;
        }
        let length = out.len().min(self.buffer.len() - self.given);
        out[..length].copy_from_slice(&self.buffer[self.given..self.given + length]);
        self.given += length;
        Ok(length)
    }
}
