//! The model file: safetensors weights that any tool can open, and beside them, in the file's metadata,
//! all that is needed to use them again and to know where they came from (Mitchell et al., "Model cards",
//! 2019, ask for no less). Saved whole or not at all; a digest over document and weights finds damage.

use crate::atomic::write_whole;
use crate::tensors::{Limits, TensorRef, read_tensors, write_tensors};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use starlings_core::{Fault, Model, Result, Role, Tensor};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The format this version writes, and the newest it reads.
pub const FORMAT: u64 = 1;

/// A trained model with what belongs to it.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelFile {
    /// The learner's name in the catalogue.
    pub learner: String,
    /// The learner's parameters.
    pub params: Value,
    /// How rows become features; only the data crate looks inside.
    pub schema: Value,
    /// The job as TOML, everything filled in.
    pub job: String,
    /// Where it came from.
    pub provenance: Provenance,
    /// The weights. State is left out when saving.
    pub model: Model,
}

/// Where a model came from.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Digest of the training data.
    pub data_digest: String,
    /// The version that trained it.
    pub starlings_version: String,
    /// The job's seed.
    pub seed: u64,
    /// When, if the caller wants it recorded: equal runs then no longer give equal bytes.
    pub created: Option<String>,
    /// Steps done.
    pub steps: u64,
    /// Workers.
    pub workers: u32,
    /// Metrics on the training rows.
    #[serde(with = "numbers")]
    pub metrics: BTreeMap<String, f64>,
    /// Metrics on the test rows.
    #[serde(with = "numbers")]
    pub evaluation: BTreeMap<String, f64>,
}

/// The JSON in the metadata. `format` and `written_by` keep their place in every version to come.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u64,
    written_by: String,
    /// BLAKE3 of the weights' digest and of this document with this field empty.
    digest: String,
    learner: String,
    params: Value,
    schema: Value,
    job: String,
    provenance: Provenance,
    tensors: Vec<String>,
}

impl Document {
    fn seal(&mut self, weights: &Model) -> String {
        let digest = std::mem::take(&mut self.digest);
        let text = serde_json::to_vec(self).expect("a document is always JSON");
        let mut hasher = blake3::Hasher::new();
        hasher.update(&weights.digest()).update(&text);
        self.digest = digest;
        hasher.finalize().to_hex().to_string()
    }
}

/// Saves a model file, whole or not at all.
///
/// # Errors
/// The disk's faults, and a schema too large to be loaded again.
pub fn save(path: &Path, file: &ModelFile) -> Result<()> {
    write_whole(path, |out| write(out, file))
        .map_err(|fault| fault.during(format!("saving the model '{}'", path.display())))
}

/// Writes a model file's bytes.
///
/// # Errors
/// As [`save`].
pub fn write(out: &mut dyn Write, file: &ModelFile) -> Result<()> {
    let mut weights = Model::new();
    for (name, tensor) in file.model.iter().filter(|(_, tensor)| tensor.role == Role::Weight) {
        weights.set(name, tensor.clone());
    }
    let mut document = Document {
        format: FORMAT,
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        digest: String::new(),
        learner: file.learner.clone(),
        params: file.params.clone(),
        schema: file.schema.clone(),
        job: file.job.clone(),
        provenance: file.provenance.clone(),
        tensors: weights.iter().map(|(name, _)| name.to_owned()).collect(),
    };
    document.digest = document.seal(&weights);
    let text = serde_json::to_string(&document).expect("a document is always JSON");
    let tensors = weights.iter().map(|(name, tensor)| {
        (name.to_owned(), TensorRef { shape: &tensor.shape, values: &tensor.values })
    });
    write_tensors(out, &tensors.collect(), text, Limits::MODEL_FILE)
}

/// Loads a model file.
///
/// # Errors
/// No such file; not a model file; cut short or damaged; written by a newer version.
pub fn load(path: &Path) -> Result<ModelFile> {
    let during = |fault: Fault| fault.during(format!("loading the model '{}'", path.display()));
    let bytes = read_file(path).map_err(during)?;
    read(&bytes).map_err(during)
}

/// Reads a model file's bytes.
///
/// # Errors
/// As [`load`].
pub fn read(bytes: &[u8]) -> Result<ModelFile> {
    check_start(bytes, bytes.len() as u64)?;
    let contents = read_tensors(bytes, Limits::MODEL_FILE).map_err(with_advice)?;
    let text =
        contents.document.ok_or_else(|| not_a_model("it lacks the document of starlings"))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| not_a_model("its document is not JSON").caused_by(error))?;
    let format = value.get("format").and_then(Value::as_u64);
    let format = format.ok_or_else(|| not_a_model("its document has no format version"))?;
    if format > FORMAT {
        let by = value.get("written_by").and_then(Value::as_str).unwrap_or("of a later version");
        return Err(Fault::caller(format!(
            "written by starlings {by} in format {format}; this one reads up to format {FORMAT}"
        ))
        .hint("upgrade starlings"));
    }
    let mut document: Document =
        serde_json::from_value(value).map_err(|error| damaged("its document").caused_by(error))?;
    if let Some(name) = document.tensors.iter().find(|name| !contents.tensors.contains_key(*name)) {
        return Err(damaged(&format!("the tensor '{name}' is missing")));
    }
    let mut model = Model::new();
    for (name, (shape, values)) in contents.tensors {
        model.set(name, Tensor { shape, values, role: Role::Weight });
    }
    // One spelling only: a changed last digit that means the same number is damage, too.
    let spelling = serde_json::to_string(&document).expect("a document is always JSON");
    if document.seal(&model) != document.digest || spelling != text {
        return Err(damaged("its bytes do not match its digest"));
    }
    let Document { learner, params, schema, job, provenance, .. } = document;
    Ok(ModelFile { learner, params, schema, job, provenance, model })
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| {
        Fault::caller(error.to_string())
            .hint("give the path of a file written by starlings train --out")
    };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(not_a_model("it is not a regular file"));
    }
    let file = File::open(path).map_err(failed)?;
    // The first bytes decide, so that a huge file of another kind is not read to be refused.
    let mut bytes = Vec::new();
    (&file).take(9).read_to_end(&mut bytes).map_err(failed)?;
    check_start(&bytes, metadata.len())?;
    file.take(metadata.len()).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Tells another kind of file from one of ours that was cut short.
fn check_start(bytes: &[u8], length: u64) -> Result<()> {
    let header = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
    let Some(header) = header else {
        return Err(not_a_model(&format!("it has only {length} bytes")));
    };
    if header > Limits::MODEL_FILE.header_bytes_max as u64
        || bytes.get(8).is_some_and(|&b| b != b'{')
    {
        return Err(not_a_model("it does not begin like one"));
    }
    if header + 8 > length {
        return Err(with_advice(Fault::caller("truncated: the header is incomplete")));
    }
    Ok(())
}

fn not_a_model(why: &str) -> Fault {
    Fault::caller(format!("not a model file: {why}"))
        .hint("give the path of a file written by starlings train --out")
}

fn damaged(what: &str) -> Fault {
    with_advice(Fault::caller(format!("the file is damaged: {what}")))
}

fn with_advice(fault: Fault) -> Fault {
    fault.hint("copy the file again from where it was trained, or train again")
}

/// JSON has no NaN or infinity; a metric that is not a number is written as null and read as NaN.
mod numbers {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<String, f64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(map.iter().map(|(name, value)| (name, value.is_finite().then_some(*value))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<String, f64>, D::Error> {
        let map = BTreeMap::<String, Option<f64>>::deserialize(from)?;
        Ok(map.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use starlings_core::Blame;

    fn sample() -> ModelFile {
        let mut model = Model::new();
        model.set(
            "weights",
            Tensor::of(&[2, 2], vec![0.1, f64::MIN_POSITIVE, -0.0, 3e300], Role::Weight),
        );
        model.set("momentum", Tensor::of(&[2], vec![1.0, 2.0], Role::State));
        ModelFile {
            learner: "logistic-regression".into(),
            params: json!({"l2": 1e-4, "third": 1.0 / 3.0}),
            schema: json!({"columns": ["b", "a"], "label": null}),
            job: "[learner]\nname = \"logistic-regression\"\n".into(),
            provenance: Provenance {
                data_digest: "00ff".into(),
                starlings_version: "0.1.0".into(),
                seed: u64::MAX,
                steps: 42,
                workers: 4,
                metrics: [("accuracy".to_owned(), 0.1 + 0.2)].into(),
                ..Provenance::default()
            },
            model,
        }
    }

    fn bytes_of(file: &ModelFile) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, file).unwrap();
        bytes
    }

    #[test]
    fn a_model_file_comes_back_without_its_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let file = sample();
        save(&path, &file).unwrap();
        let mut wanted = file.clone();
        wanted.model.remove("momentum");
        assert_eq!(load(&path).unwrap(), wanted);
        assert_eq!(bytes_of(&file), bytes_of(&wanted), "equal models give equal bytes");
    }

    #[test]
    fn a_metric_that_is_not_a_number_does_not_spoil_the_file() {
        let mut file = sample();
        file.provenance.evaluation = [("auc".to_owned(), f64::NAN)].into();
        let back = read(&bytes_of(&file)).unwrap();
        assert!(back.provenance.evaluation["auc"].is_nan());
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_found() {
        let bytes = bytes_of(&sample());
        let padding: Vec<usize> = {
            let header = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
            (0..8 + header).rev().take_while(|&at| bytes[at] == b' ').collect()
        };
        for at in 0..bytes.len() {
            let fault = read(&bytes[..at]).unwrap_err();
            assert_eq!(fault.blame(), Blame::Caller);
            assert!(
                fault.message().contains(if at < 8 { "not a model" } else { "truncated" }),
                "{fault}"
            );
            for flip in [1u8, 0x20, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                // Blanks after the header mean nothing, and a control character there is refused anyway.
                assert!(padding.contains(&at) || read(&changed).is_err(), "byte {at} ^ {flip}");
            }
        }
    }

    #[test]
    fn other_files_are_recognised_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.csv");
        std::fs::write(&path, "a,b,c\n1,2,3\n4,5,6\n").unwrap();
        let fault = load(&path).unwrap_err();
        assert!(fault.message().contains("not a model file"), "{fault}");
        assert!(fault.message().contains("data.csv"), "{fault}");
        assert!(load(folder.path()).unwrap_err().message().contains("not a regular file"));
        assert_eq!(load(&folder.path().join("none")).unwrap_err().blame(), Blame::Caller);
        let mut plain = Vec::new();
        crate::tensors::write_tensors(&mut plain, &BTreeMap::new(), "{}".into(), Limits::TENSORS)
            .unwrap();
        assert!(read(&plain).unwrap_err().message().contains("no format version"));
    }

    #[test]
    fn a_newer_format_asks_for_an_upgrade() {
        let mut bytes = Vec::new();
        let document = json!({"format": 2, "written_by": "9.0.0", "novelty": true}).to_string();
        crate::tensors::write_tensors(&mut bytes, &BTreeMap::new(), document, Limits::MODEL_FILE)
            .unwrap();
        let fault = read(&bytes).unwrap_err();
        assert!(fault.message().contains("written by starlings 9.0.0"), "{fault}");
        assert_eq!(fault.advice(), Some("upgrade starlings"));
    }

    #[test]
    fn a_missing_tensor_is_named() {
        let bytes = bytes_of(&sample());
        let contents = read_tensors(&bytes, Limits::MODEL_FILE).unwrap();
        let mut without = Vec::new();
        let document = contents.document.unwrap();
        write_tensors(&mut without, &BTreeMap::new(), document, Limits::MODEL_FILE).unwrap();
        let fault = read(&without).unwrap_err();
        assert!(fault.message().contains("'weights' is missing"), "{fault}");
    }
}
