//! The manifest of a checkpoint: which parts it has, their lengths and digests, and the job they belong
//! to. It is written last, so that a folder with a manifest is complete; it carries a seal over itself and
//! has only one spelling, so that every changed byte is found.

use crate::atomic::check_name;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use starlings_core::{Epoch, Fault, Result, Step};
use std::collections::BTreeMap;

/// The format this version writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// Largest manifest that is read.
pub const MANIFEST_BYTES_MAX: usize = 16 << 20;

/// What makes two jobs the same for the purpose of going on: settings by key, such as `learner.name`,
/// `train.seed` or `data.digest`. Workers, launcher and the like are left out: they may change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub BTreeMap<String, String>);

impl Fingerprint {
    /// The first key in which another job differs, with both values (`None`: it lacks the key).
    #[must_use]
    pub fn difference<'a>(&'a self, other: &'a Fingerprint) -> Option<Difference<'a>> {
        let keys = self.0.keys().chain(other.0.keys());
        keys.map(|key| Difference {
            key,
            ours: self.0.get(key).map(String::as_str),
            theirs: other.0.get(key).map(String::as_str),
        })
        .find(|difference| difference.ours != difference.theirs)
    }
}

/// A key in which two jobs differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference<'a> {
    /// The key.
    pub key: &'a str,
    /// The value of this job.
    pub ours: Option<&'a str>,
    /// The value of the other.
    pub theirs: Option<&'a str>,
}

/// One file of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartInfo {
    /// Its file name.
    pub name: String,
    /// Its bytes.
    pub length: u64,
    /// BLAKE3 of them, in hexadecimal.
    pub blake3: String,
}

/// What a checkpoint consists of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The step it was cut at: this many steps are done.
    pub step: Step,
    /// The epoch of members that wrote it.
    pub epoch: Epoch,
    /// How many workers wrote it.
    pub workers: u32,
    /// Virtual shards of the job.
    pub shards: u32,
    /// The job.
    pub fingerprint: Fingerprint,
    /// The version that wrote it.
    pub written_by: String,
    /// What the engine must know beyond tensors: passes, rows used, history.
    pub progress: Value,
    /// Its files.
    pub parts: Vec<PartInfo>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    format: u32,
    /// BLAKE3 of format and manifest, in hexadecimal.
    seal: String,
    manifest: Manifest,
}

impl Sealed {
    fn of(manifest: &Manifest) -> Sealed {
        let text = serde_json::to_vec(manifest).expect("a manifest is always JSON");
        let mut hasher = blake3::Hasher::new();
        hasher.update(&FORMAT.to_le_bytes()).update(&text);
        let seal = hasher.finalize().to_hex().to_string();
        Sealed { format: FORMAT, seal, manifest: manifest.clone() }
    }

    fn spelling(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("a manifest is always JSON");
        text.push(b'\n');
        text
    }
}

impl Manifest {
    /// Its bytes as a file.
    ///
    /// # Errors
    /// Part names that are not names, or occur twice.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.check()?;
        Ok(Sealed::of(self).spelling())
    }

    /// Reads what [`Manifest::to_bytes`] gave.
    ///
    /// # Errors
    /// Anything that is not exactly that, with the difference between damage and a newer format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Manifest> {
        let damage = |why: String| Fault::machine(format!("the manifest is damaged: {why}"));
        let sealed: Sealed = serde_json::from_slice(bytes)
            .map_err(|error| newer(bytes).unwrap_or_else(|| damage(error.to_string())))?;
        if sealed.format != FORMAT {
            return Err(newer(bytes).unwrap_or_else(|| damage("its format is unknown".into())));
        }
        let again = Sealed::of(&sealed.manifest);
        if again.seal != sealed.seal || again.spelling() != bytes {
            return Err(damage("it does not match its seal".into()));
        }
        sealed.manifest.check()?;
        Ok(sealed.manifest)
    }

    /// Bytes of all parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.length))
    }

    /// The part with this file name.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&PartInfo> {
        self.parts.iter().find(|part| part.name == name)
    }

    fn check(&self) -> Result<()> {
        let mut names: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        names.iter().try_for_each(|name| check_name(name))?;
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Fault::caller(format!("the part '{}' is listed twice", pair[0]))),
            None => Ok(()),
        }
    }
}

fn newer(bytes: &[u8]) -> Option<Fault> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let format = value.get("format")?.as_u64()?;
    (format > u64::from(FORMAT)).then(|| {
        Fault::caller(format!("the manifest has format {format}; this one reads up to {FORMAT}"))
            .hint("upgrade starlings")
    })
}
