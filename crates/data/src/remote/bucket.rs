//! A bucket to write into: what checkpoints need of an S3-compatible store. Whoever puts an object may say what must be true
//! for it to be obeyed, which lets exactly one of two writers win (`If-None-Match` and `If-Match`).

use super::objects::{Store, parse};
use super::{Refusal, split};
use object_store::{Error, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use starlings_core::{Fault, Result};
use std::io::{self, ErrorKind};

/// What must be true for an object to be put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Put {
    /// Nothing.
    Always,
    /// There is no such object.
    Absent,
    /// It still has this entity tag.
    Is(String),
}

/// A bucket.
pub struct Bucket {
    root: String,
    store: Store,
}

impl Bucket {
    /// The bucket that `s3://bucket/folder` is in.
    ///
    /// # Errors
    /// Not such an address, or settings that make no sense.
    pub fn of(address: &str) -> Result<Bucket> {
        if !address.starts_with("s3://") {
            return Err(Fault::caller(format!("{address} is not an address of a bucket"))
                .hint("such as s3://bucket/folder"));
        }
        let (root, _) = split(address)?;
        let store = Store::at(&root)?;
        Ok(Bucket { root, store })
    }

    /// Puts an object whole, and gives its entity tag.
    ///
    /// # Errors
    /// `AlreadyExists` when the condition does not hold. Anything else leaves open whether the object was put.
    pub fn put(&self, key: &str, bytes: &[u8], condition: &Put) -> io::Result<String> {
        let mode = match condition {
            Put::Always => PutMode::Overwrite,
            Put::Absent => PutMode::Create,
            Put::Is(tag) => {
                PutMode::Update(UpdateVersion { e_tag: Some(tag.clone()), version: None })
            }
        };
        let (path, options) = (self.path(key)?, PutOptions::from(mode));
        let payload = bytes.to_vec().into();
        let answer = self.store.ask(self.store.objects.put_opts(&path, payload, options));
        Ok(answer.map_err(|error| self.failed(key, error))?.e_tag.unwrap_or_default())
    }

    /// An object and its entity tag.
    ///
    /// # Errors
    /// `NotFound`; whatever the store reports.
    pub fn get(&self, key: &str) -> io::Result<(Vec<u8>, String)> {
        let path = self.path(key)?;
        let answer = self.store.ask(async {
            let found = self.store.objects.get(&path).await?;
            let tag = found.meta.e_tag.clone().unwrap_or_default();
            Ok((found.bytes().await?.to_vec(), tag))
        });
        answer.map_err(|error| self.failed(key, error))
    }

    /// Keys that begin with this folder, at any depth.
    ///
    /// # Errors
    /// Whatever the store reports.
    pub fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let (mut found, mut folders) = (Vec::new(), vec![folder.to_string()]);
        while let Some(folder) = folders.pop() {
            let path = self.path(&folder)?;
            let listed = self.store.ask(self.store.objects.list_with_delimiter(Some(&path)));
            let listed = listed.map_err(|error| self.failed(&folder, error))?;
            found.extend(listed.objects.into_iter().map(|it| it.location.to_string()));
            folders.extend(listed.common_prefixes.into_iter().map(|it| it.to_string()));
        }
        Ok(found)
    }

    /// Removes an object; one that is not there is removed already.
    ///
    /// # Errors
    /// Whatever the store reports.
    pub fn delete(&self, key: &str) -> io::Result<()> {
        let path = self.path(key)?;
        match self.store.ask(self.store.objects.delete(&path)) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(key, error)),
        }
    }

    fn path(&self, key: &str) -> io::Result<object_store::path::Path> {
        parse(key.trim_matches('/')).map_err(|refusal| match refusal {
            Refusal::Other(what) => io::Error::new(ErrorKind::InvalidInput, what),
            Refusal::Absent | Refusal::Forbidden => ErrorKind::InvalidInput.into(),
        })
    }

    fn failed(&self, key: &str, error: Error) -> io::Error {
        let kind = match &error {
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::AlreadyExists { .. } | Error::Precondition { .. } => ErrorKind::AlreadyExists,
            Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => {
                ErrorKind::PermissionDenied
            }
            _ => ErrorKind::Other,
        };
        io::Error::new(kind, format!("{}/{key}: {error}", self.root))
    }
}
