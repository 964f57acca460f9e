//! Files at `s3://` and `http(s)://` addresses, read in ranges. The store is asked from the thread that reads, on a small
//! runtime of its own; requests that fail in passing are repeated within a deadline.
//!
//! Credentials come from whoever calls [`configure`], which the command line does once with the `AWS_*` variables of its
//! environment; they are never written anywhere, and an address that carries some is refused.

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, Error, ObjectStore, ObjectStoreExt, RetryConfig};
use starlings_core::{Fault, Result};
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Bytes asked for at a time.
const RANGE_BYTES: u64 = 4 << 20;
/// A request ends after this long, its repetitions included.
const REQUEST: Duration = Duration::from_secs(30);
const DEADLINE: Duration = Duration::from_secs(120);

static SETTINGS: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Says by which `AWS_*` settings stores are reached: keys, region, endpoint. The first call counts.
pub fn configure(settings: impl IntoIterator<Item = (String, String)>) {
    let mut settings = Some(settings);
    SETTINGS.get_or_init(|| settings.take().into_iter().flatten().collect());
}

/// Whether an address is one of these.
pub(crate) fn is_remote(place: &str) -> bool {
    ["s3://", "http://", "https://"].iter().any(|scheme| place.starts_with(scheme))
}

/// A file at an address.
pub(crate) struct Remote {
    address: String,
    store: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
    runtime: Arc<Runtime>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.address)
    }
}

/// The files that an address means: one, all below `…/`, or those that match a pattern in the last part.
pub(crate) fn open(address: &str) -> Result<Vec<Arc<Remote>>> {
    let (root, key) = split(address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = Arc::new(runtime.map_err(|error| Fault::machine(error.to_string()))?);
    let store = store(&root)?;
    let remote = |path: Path, size: u64| {
        let address = format!("{root}/{path}");
        Arc::new(Remote { address, store: store.clone(), path, size, runtime: runtime.clone() })
    };
    let parse = |key: &str| {
        let wrong = |error| Fault::caller(format!("{address} is not an address")).caused_by(error);
        Path::parse(key).map_err(wrong)
    };
    let (folder, last) = key.rsplit_once('/').unwrap_or(("", &key));
    if !last.is_empty() && !last.contains(['*', '?', '[']) {
        let path = parse(&key)?;
        let found = wait(&runtime, store.head(&path)).map_err(|error| failed(address, &error))?;
        return Ok(vec![remote(path, found.size)]);
    }
    let pattern = match last.is_empty() {
        true => None,
        false => Some(glob::Pattern::new(last).map_err(|error| {
            Fault::caller(format!("{address} is not a pattern of names")).caused_by(error)
        })?),
    };
    let folder = parse(folder)?;
    let listed = wait(&runtime, store.list_with_delimiter(Some(&folder)));
    let listed = listed.map_err(|error| failed(address, &error))?;
    let mut files: Vec<Arc<Remote>> = Vec::new();
    for found in listed.objects {
        let name = found.location.filename().unwrap_or_default();
        let hidden = name.is_empty() || name.starts_with(['.', '_']);
        if !hidden && pattern.as_ref().is_none_or(|pattern| pattern.matches(name)) {
            files.push(remote(found.location.clone(), found.size));
        }
    }
    files.sort_by(|a, b| a.path.as_ref().cmp(b.path.as_ref()));
    match files.is_empty() {
        false => Ok(files),
        true => Err(Fault::caller(format!("{address}: there are no files"))),
    }
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
        return Err(Fault::caller(format!("{address} names no file"))
            .hint("such as s3://bucket/folder/train.csv or https://host/train.csv"));
    }
    Ok((format!("{scheme}://{host}"), key.to_string()))
}

fn store(root: &str) -> Result<Arc<dyn ObjectStore>> {
    // Only the first call counts, and the process may have chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig { max_retries: 5, retry_timeout: REQUEST, ..RetryConfig::default() };
    let wrong = |error: Error| Fault::caller(format!("{root} cannot be reached")).caused_by(error);
    let options = ClientOptions::new().with_timeout(REQUEST).with_allow_http(true);
    let Some(bucket) = root.strip_prefix("s3://") else {
        let builder = HttpBuilder::new().with_url(root).with_client_options(options);
        return Ok(Arc::new(builder.with_retry(retry).build().map_err(wrong)?));
    };
    let mut builder = AmazonS3Builder::new().with_client_options(options).with_retry(retry);
    let mut signed = false;
    for (name, value) in SETTINGS.get().into_iter().flatten() {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            signed |= key == AmazonS3ConfigKey::AccessKeyId;
            builder = builder.with_config(key, value);
        }
    }
    // Without keys only what is public can be read; asking a cloud's machines for keys would hang elsewhere.
    builder = builder.with_skip_signature(!signed).with_bucket_name(bucket);
    Ok(Arc::new(builder.build().map_err(wrong)?))
}

/// Waits for an answer of the store, but not for ever.
fn wait<T>(runtime: &Runtime, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = |_| Error::Generic { store: "remote", source: "no answer in time".into() };
    let timed = async { tokio::time::timeout(DEADLINE, answer).await };
    runtime.block_on(timed).unwrap_or_else(|error| Err(late(error)))
}

fn failed(address: &str, error: &Error) -> Fault {
    match error {
        Error::NotFound { .. } => Fault::caller(format!("there is no file {address}"))
            .hint("see that bucket, folder and name are right"),
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => Fault::caller(format!(
            "the store does not let us read {address}"
        ))
        .hint(
            "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, on workers elsewhere too",
        ),
        error => Fault::machine(format!("cannot read {address}")).caused_by(error),
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
        let answer = wait(&self.runtime, self.store.get_range(&self.path, from..to));
        let bytes = answer.map_err(|error| io::Error::other(failed(&self.address, &error)))?;
        Ok(bytes.to_vec())
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
