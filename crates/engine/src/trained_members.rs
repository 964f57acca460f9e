//! Model files as members of an ensemble (Verbraeken et al., 2020, section 4.2.1: models of several sites are
//! combined, and no row moves). The job names a file, `model = "site-a.safetensors"`, in a member's table; here the file
//! is read: first what it is, which goes into the table so that the ensemble's own model file needs no other, then its
//! tensors, which go into the ensemble's first model. A file whose name ends in `.onnx` is a model of another library.

use starlings_cluster::model_file;
use starlings_core::{Fault, Model, Result};
use starlings_data::{Intake, Schema};
use starlings_learn::Learner;
use starlings_learn::onnx::{self, FILE_BYTES_MAX, Limits, Program, Wishes};
use std::io::Read;
use std::path::Path;

/// The key that names a file, and the one that says it was read.
const MODEL: &str = "model";
const SCHEMA: &str = "schema";
/// How its columns were prepared, as one text.
const PREPARED: &str = "prepared";
/// What else a table with a file may have.
const WEIGHT: &str = "weight";

/// The learner's table with what the files in it are.
pub(crate) fn resolve(given: &toml::Table) -> Result<toml::Table> {
    let mut resolved = given.clone();
    each_member(&mut resolved, &mut |member| {
        let Some(path) = unread(member) else { return Ok(()) };
        let read = describe(Path::new(&path), member)?;
        member.extend(read);
        Ok(())
    })?;
    Ok(resolved)
}

/// Makes paths in the learner's table absolute, so that workers in other folders find the same files.
pub(crate) fn root(given: &mut toml::Table, folder: &Path) {
    let rooted = each_member(given, &mut |member| {
        if let Some(path) = unread(member) {
            let path = folder.join(path).to_string_lossy().into_owned();
            member.insert(MODEL.to_string(), path.into());
        }
        Ok(())
    });
    rooted.expect("nothing is refused");
}

/// Puts the tensors of files into a first model.
pub(crate) fn furnish(learner: &dyn Learner, model: &mut Model) -> Result<()> {
    for (path, prefix) in learner.furnishings() {
        let path = Path::new(&path);
        let trained = match is_onnx(path) {
            true => onnx::tensors(&read_onnx(path)?),
            false => model_file::load(path)?.model,
        };
        for (name, tensor) in trained.iter() {
            model.set(format!("{prefix}{name}"), tensor.clone());
        }
    }
    Ok(())
}

/// The path of a member's file, if it was not read yet.
fn unread(member: &toml::Table) -> Option<String> {
    let path = member.get(MODEL)?.as_str()?;
    (!member.contains_key(SCHEMA)).then(|| path.to_string())
}

/// Calls with every table within a table, innermost last.
fn each_member(
    table: &mut toml::Table,
    each: &mut dyn FnMut(&mut toml::Table) -> Result<()>,
) -> Result<()> {
    for (key, value) in table.iter_mut() {
        // A schema has columns, not members.
        if key == SCHEMA {
            continue;
        }
        let inner: Vec<&mut toml::Table> = match value {
            toml::Value::Table(inner) => vec![inner],
            toml::Value::Array(many) => {
                many.iter_mut().filter_map(toml::Value::as_table_mut).collect()
            }
            _ => continue,
        };
        for member in inner {
            each(member)?;
            each_member(member, each)?;
        }
    }
    Ok(())
}

/// Whether a file is a model of another library.
fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("onnx"))
}

fn read_onnx(path: &Path) -> Result<Vec<u8>> {
    let during = |fault: Fault| fault.during(format!("loading the model '{}'", path.display()));
    let failed = |error: std::io::Error| {
        during(Fault::caller(error.to_string()).hint("give the path of an ONNX file"))
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(during(Fault::caller(format!("it has more than {FILE_BYTES_MAX} bytes")))),
        false => Ok(bytes),
    }
}

/// What a model of another library is: what it reads, and what it answers.
fn describe_onnx(path: &Path, member: &toml::Table) -> Result<toml::Table> {
    let during = |fault: Fault| fault.during(format!("the model '{}'", path.display()));
    let mut given = member.clone();
    let wishes = Wishes::take(&mut given).map_err(during)?;
    if let Some(key) = given.keys().find(|key| *key != MODEL && *key != WEIGHT) {
        return Err(during(Fault::caller(format!("unknown key '{key}'")))
            .hint("a member with an ONNX file takes weight, classes, output and scale"));
    }
    let program = Program::read(&read_onnx(path)?, &wishes, Limits::USE).map_err(during)?;
    let schema = toml::Value::try_from(program.schema());
    let schema = schema.map_err(|error| during(Fault::caller("its schema").caused_by(error)))?;
    let found = [("name", "onnx".into()), (SCHEMA, schema)];
    Ok(found.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
}

/// What a model file is: learner, parameters, schema.
fn describe(path: &Path, member: &toml::Table) -> Result<toml::Table> {
    if is_onnx(path) {
        return describe_onnx(path, member);
    }
    if let Some(key) = member.keys().find(|key| *key != MODEL && *key != WEIGHT) {
        return Err(Fault::caller(format!(
            "'{key}' beside model = \"{}\": a model is as it was trained",
            path.display()
        ))
        .hint("a member with a model takes weight, and no other key"));
    }
    let file = model_file::load(path)?;
    let broken = |what: &str| {
        Fault::caller(format!("the model file '{}' has a broken {what}", path.display()))
    };
    let mut found: toml::Table =
        serde_json::from_value(file.params.clone()).map_err(|_| broken("parameter"))?;
    let schema: Schema =
        serde_json::from_value(file.schema.clone()).map_err(|_| broken("schema"))?;
    let intake: Intake = match file.schema.get("intake") {
        None => Intake::default(),
        Some(intake) => {
            serde_json::from_value(intake.clone()).map_err(|_| broken("preparation"))?
        }
    };
    if !intake.prepared.is_empty() {
        let refused = |why: &str| {
            Err(Fault::caller(format!("the model '{}' {why}", path.display()))
                .hint("train it without that step of [[prepare]], or without [[prepare]]"))
        };
        if intake.prepared.reads_words() {
            return refused(
                "reads the words of texts, and members see which text it is, not its words",
            );
        }
        if intake.prepared.raw.is_empty() {
            return refused(
                "prepares features that have no names, and members find columns by name",
            );
        }
        found.insert(PREPARED.to_string(), intake.prepared.to_text()?.into());
    }
    let schema = toml::Value::try_from(&schema).map_err(|_| broken("schema"))?;
    found.insert("name".to_string(), file.learner.into());
    found.insert(SCHEMA.to_string(), schema);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_members_are_rooted_however_deep() {
        let text = "members = [{ model = 'a', weight = 2 }, { name = 'voting', members = [{ model = '/b' }] }]";
        let mut table: toml::Table = text.parse().unwrap();
        root(&mut table, Path::new("/jobs"));
        let text = table.to_string();
        assert!(text.contains("\"/jobs/a\"") && text.contains("\"/b\""), "{text}");
    }

    #[test]
    fn a_file_that_is_not_there_and_keys_beside_it_are_refused() {
        let refused = |text: &str| resolve(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(refused("members = [{ model = '/nowhere/a' }]").contains("/nowhere/a"));
        let text = refused("members = [{ model = '/nowhere/a', max_depth = 3 }]");
        assert!(text.contains("'max_depth'"), "{text}");
    }
}
