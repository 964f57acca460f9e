//! What is read from disk and may come from anywhere: manifests, tensor files, model files, models of other libraries.

use super::Decoder;
use serde_json::json;
use starlings_cluster::manifest::{Fingerprint, Manifest, PartInfo};
use starlings_cluster::model_file::{self, ModelFile, Provenance};
use starlings_cluster::tensors::{
    Cells, Limits, read_cells, read_model, read_tensors, write_cells, write_model,
};
use starlings_core::{Epoch, Model, Role, Step, Tensor, Values};
use starlings_learn::onnx::{Limits as Room, Program, Wishes};

pub(super) const MANIFEST: Decoder = Decoder { name: "manifest", run: manifest, seeds: manifests };
pub(super) const TENSORS: Decoder = Decoder { name: "tensors", run: tensors, seeds: tensor_files };
pub(super) const MODEL_FILE: Decoder =
    Decoder { name: "model_file", run: model, seeds: model_files };
pub(super) const ONNX: Decoder = Decoder { name: "onnx", run: onnx, seeds: onnx_files };

fn manifest(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::from_bytes(bytes) {
        assert_eq!(manifest.to_bytes().expect("it was read"), bytes, "one spelling");
    }
}

fn manifests() -> Vec<Vec<u8>> {
    let part = |name: &str| PartInfo { name: name.into(), length: 9, blake3: "00".repeat(32) };
    let manifest = Manifest {
        step: Step(42),
        epoch: Epoch(1),
        workers: 2,
        shards: 4,
        fingerprint: Fingerprint([("train.seed".to_owned(), "1".to_owned())].into()),
        written_by: "0.1.0".into(),
        progress: json!({"samples": 7, "objective": 0.1, "list": [null, true, "x"]}),
        parts: vec![part("model.safetensors"), part("memory-0.safetensors")],
    };
    vec![manifest.to_bytes().expect("sound"), br#"{"format": 7}"#.to_vec()]
}

fn tensors(bytes: &[u8]) {
    if let Ok(contents) = read_tensors(bytes, Limits::TENSORS) {
        let held: usize = contents
            .tensors
            .values()
            .map(|(shape, values)| {
                assert_eq!(shape.iter().product::<usize>(), values.len());
                values.len() * values.kind().bytes()
            })
            .sum();
        assert!(held <= bytes.len(), "more numbers than there are bytes");
    }
    if let Ok(model) = read_model(bytes) {
        let mut again = Vec::new();
        write_model(&mut again, &model).expect("it was read");
        let reread = read_model(&again).expect("its own");
        assert_eq!(reread.digest(), model.digest());
    }
    if let Ok(cells) = read_cells(bytes) {
        let mut again = Vec::new();
        write_cells(&mut again, &cells).expect("it was read");
    }
}

fn weights() -> Model {
    let mut model = Model::new();
    model.set("weight", Tensor::of(&[2, 2], vec![1.0, 2.0, f64::NAN, -0.0], Role::Weight));
    let counts = Tensor { shape: vec![2], values: Values::I64(vec![3, -4]), role: Role::State };
    model.set("counts", counts);
    model
}

fn tensor_files() -> Vec<Vec<u8>> {
    let mut model = Vec::new();
    write_model(&mut model, &weights()).expect("sound");
    let cells: Cells = [(3, [("dual".to_owned(), Values::F32(vec![1.5, 2.5]))].into())].into();
    let mut memory = Vec::new();
    write_cells(&mut memory, &cells).expect("sound");
    vec![model, memory]
}

fn model(bytes: &[u8]) {
    if let Ok(file) = model_file::read(bytes) {
        let mut again = Vec::new();
        model_file::write(&mut again, &file).expect("it was read");
        model_file::read(&again).expect("its own");
    }
}

fn model_files() -> Vec<Vec<u8>> {
    let file = ModelFile {
        learner: "k-means".into(),
        params: json!({"k": 3}),
        schema: json!({"features": 2}),
        job: "[data]\ntrain = 'digits'\n".into(),
        provenance: Provenance::default(),
        model: weights(),
    };
    let mut bytes = Vec::new();
    model_file::write(&mut bytes, &file).expect("sound");
    vec![bytes]
}

/// Reads a model of another library and asks it about two rows, within little room.
fn onnx(bytes: &[u8]) {
    let room = Room { numbers_max: 1 << 18, work_max: 1 << 22 };
    let Ok(program) = Program::read(bytes, &Wishes::default(), room) else { return };
    let width = program.features();
    let mut said = Vec::new();
    if width <= 1000 && program.answer_dense(&vec![1.5; 2 * width], &mut said).is_ok() {
        assert_eq!(said.len(), 2 * program.outputs(), "an answer for each row");
        assert!(said.iter().all(|x| x.is_finite()), "numbers");
    }
}

fn onnx_files() -> Vec<Vec<u8>> {
    let files: [&[u8]; 6] = [
        include_bytes!("../../../learn/tests/assets/onnx/pipeline.onnx"),
        include_bytes!("../../../learn/tests/assets/onnx/boosting-binary.onnx"),
        include_bytes!("../../../learn/tests/assets/onnx/columns.onnx"),
        include_bytes!("../../../learn/tests/assets/onnx/mlp-binary.onnx"),
        include_bytes!("../../../learn/tests/assets/onnx/naive-bayes.onnx"),
        include_bytes!("../../../learn/tests/assets/onnx/polynomial.onnx"),
    ];
    files.iter().map(|file| file.to_vec()).collect()
}
