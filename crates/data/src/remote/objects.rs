//! Objects of an S3-compatible store, and files of a web server that answers ranges, through `object_store`.

use super::{Files, Refusal, runtime, settings, wait};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, Error, ObjectStore, ObjectStoreExt, RetryConfig};
use starlings_core::{Fault, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A request ends after this long.
const REQUEST: Duration = Duration::from_secs(30);
/// How often one that failed in passing is made again.
const REPETITIONS_MAX: usize = 5;

/// A bucket, or a web server.
pub(super) struct Store {
    pub(super) objects: Arc<dyn ObjectStore>,
    runtime: Runtime,
}

impl Store {
    /// That of `s3://bucket` or `https://host`.
    pub(super) fn at(root: &str) -> Result<Store> {
        Ok(Store { objects: connect(root)?, runtime: runtime()? })
    }

    /// Waits for an answer.
    pub(super) fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let late = Error::Generic { store: "remote", source: "no answer in time".into() };
        wait(&self.runtime, answer).unwrap_or(Err(late))
    }
}

impl Files for Store {
    fn size(&self, key: &str) -> Result<u64, Refusal> {
        let found = self.ask(self.objects.head(&parse(key)?)).map_err(refusal)?;
        Ok(found.size)
    }

    fn range(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>, Refusal> {
        let bytes = self.ask(self.objects.get_range(&parse(key)?, range)).map_err(refusal)?;
        Ok(bytes.to_vec())
    }

    fn below(&self, folder: &str) -> Result<Vec<(String, u64)>, Refusal> {
        let folder = parse(folder)?;
        let listed = self.ask(self.objects.list_with_delimiter(Some(&folder))).map_err(refusal)?;
        Ok(listed.objects.into_iter().map(|it| (it.location.to_string(), it.size)).collect())
    }
}

pub(super) fn parse(key: &str) -> Result<Path, Refusal> {
    Path::parse(key).map_err(|error| Refusal::Other(error.to_string()))
}

fn refusal(error: Error) -> Refusal {
    match error {
        Error::NotFound { .. } => Refusal::Absent,
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => Refusal::Forbidden,
        error => Refusal::Other(error.to_string()),
    }
}

fn connect(root: &str) -> Result<Arc<dyn ObjectStore>> {
    // Only the first call counts, and the process may have chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig {
        max_retries: REPETITIONS_MAX,
        retry_timeout: REQUEST,
        ..RetryConfig::default()
    };
    let wrong = |error: Error| Fault::caller(format!("{root} cannot be reached")).caused_by(error);
    let options = ClientOptions::new().with_timeout(REQUEST).with_allow_http(true);
    let Some(bucket) = root.strip_prefix("s3://") else {
        let builder = HttpBuilder::new().with_url(root).with_client_options(options);
        return Ok(Arc::new(builder.with_retry(retry).build().map_err(wrong)?));
    };
    let mut builder = AmazonS3Builder::new().with_client_options(options).with_retry(retry);
    let mut signed = false;
    for (name, value) in settings() {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            signed |= key == AmazonS3ConfigKey::AccessKeyId;
            builder = builder.with_config(key, value);
        }
    }
    // Without keys only what is public can be read; asking a cloud's machines for keys would hang elsewhere.
    builder = builder.with_skip_signature(!signed).with_bucket_name(bucket);
    Ok(Arc::new(builder.build().map_err(wrong)?))
}
