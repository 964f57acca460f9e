//! Where a job's checkpoints are: a folder that all hosts see, or a bucket, `[checkpoint] path = "s3://bucket/folder"`. The
//! layout and its laws are those of `cluster/src/checkpoint.rs` and `cluster/src/objects.rs`; here a bucket becomes the store
//! that they ask for.

use crate::job::CheckpointSpec;
use starlings_cluster::checkpoint::Store;
use starlings_core::Result;
use std::path::Path;

/// How the address of a bucket begins.
const SCHEME: &str = "s3://";

/// Whether a path is an address, which no folder is put before.
#[must_use]
pub fn is_address(path: &str) -> bool {
    path.starts_with(SCHEME)
}

/// The checkpoints of a job.
///
/// # Errors
/// Fewer to keep than are safe; an address that this program cannot reach.
pub fn store(spec: &CheckpointSpec) -> Result<Store> {
    store_at(&spec.path, spec.keep)
}

/// The checkpoints in a folder or a bucket.
///
/// # Errors
/// As [`store`].
pub fn store_at(path: &Path, keep: usize) -> Result<Store> {
    match path.to_str().filter(|path| is_address(path)) {
        None => Store::new(path, keep),
        Some(address) => in_bucket(address, keep),
    }
}

#[cfg(not(feature = "remote"))]
fn in_bucket(address: &str, _keep: usize) -> Result<Store> {
    Err(starlings_core::Fault::caller(format!("{address}: this program does not write to stores"))
        .hint("give a folder, or build the program with the feature `remote`"))
}

#[cfg(feature = "remote")]
fn in_bucket(address: &str, keep: usize) -> Result<Store> {
    use starlings_cluster::objects::ObjectDisk;
    use std::sync::Arc;
    let address = address.trim_end_matches('/');
    let Some((bucket, _)) = address[SCHEME.len()..].split_once('/') else {
        return Err(starlings_core::Fault::caller(format!("{address} names no folder"))
            .hint("such as s3://bucket/job-1: another job needs a folder of its own"));
    };
    let root = format!("{SCHEME}{bucket}/");
    let held = bucket::Held { bucket: starlings_data::remote::Bucket::of(address)?, root };
    Store::on(Arc::new(ObjectDisk::new(Arc::new(held))), address, keep)
}

#[cfg(feature = "remote")]
mod bucket {
    //! A bucket as the store of named objects that checkpoints ask for.

    use starlings_cluster::objects::{Condition, Objects, Version};
    use starlings_data::remote::{Bucket, Put};
    use std::io;

    /// Names are whole addresses here, so that messages can be followed.
    pub(super) struct Held {
        pub(super) bucket: Bucket,
        /// What stands before the key in a name.
        pub(super) root: String,
    }

    impl Held {
        fn key<'a>(&self, name: &'a str) -> &'a str {
            name.strip_prefix(self.root.as_str()).unwrap_or(name)
        }
    }

    impl Objects for Held {
        fn put(&self, name: &str, bytes: &[u8], condition: &Condition) -> io::Result<Version> {
            let condition = match condition {
                Condition::Always => Put::Always,
                Condition::Absent => Put::Absent,
                Condition::Is(Version(tag)) => Put::Is(tag.clone()),
            };
            self.bucket.put(self.key(name), bytes, &condition).map(Version)
        }

        fn get(&self, name: &str) -> io::Result<(Vec<u8>, Version)> {
            self.bucket.get(self.key(name)).map(|(bytes, tag)| (bytes, Version(tag)))
        }

        fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
            let found = self.bucket.list(self.key(prefix))?;
            Ok(found.iter().map(|key| format!("{}{key}", self.root)).collect())
        }

        fn delete(&self, name: &str) -> io::Result<()> {
            self.bucket.delete(self.key(name))
        }
    }
}
