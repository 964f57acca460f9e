//! From the words of a job to open sources: built-ins, addresses, files, directories and patterns, and which
//! format they have.

use crate::beside;
use crate::folds::folded;
use crate::input::{Input, cannot_open};
use crate::sources::{Format, Place, Rows, SOURCES, Shape, builtin};
use crate::{DataSpec, Source};
use starlings_core::{Entry, Fault, Result, nearest};
use std::path::{Path, PathBuf};

/// Formats that LightGBM's side files belong to.
const SIDE_FILES: [&str; 4] = ["csv", "tsv", "libsvm", "libsvm-from-0"];
/// Bytes by which a format is recognised.
const HEAD_BYTES: usize = 4096;

/// Opens all parts of a data set, in the order of their names; they have one format and the same columns.
pub(crate) fn open(spec: &DataSpec) -> Result<(&'static str, Vec<Box<dyn Rows>>)> {
    let places = places(&spec.source)?;
    let mut formats = places.iter().map(|place| format_of(place, spec));
    let format = formats.next().expect("at least one place")?;
    for (other, place) in formats.zip(places.iter().skip(1)) {
        let other = other?;
        if other.name != format.name {
            return Err(Fault::caller(format!(
                "{} mixes formats: {} is {}, and the first file is {}",
                spec.source.text(),
                name_of(place),
                other.name,
                format.name
            ))
            .hint("choose files by a pattern such as \"folder/*.csv\", or say `format`"));
        }
    }
    let mut spec = spec.clone();
    let mut parts: Vec<Box<dyn Rows>> = Vec::with_capacity(places.len());
    for place in places {
        let path = file_path(&place);
        let mut part = (format.build.open)(place, &spec)?;
        if let Some(path) = path.filter(|_| SIDE_FILES.contains(&format.name)) {
            part = beside::joined(&path, part, &spec)?;
        }
        match (parts.first(), part.shape()) {
            (Some(first), _) => same_columns(first.as_ref(), part.as_ref())?,
            // What the first file shows of headers holds for all: a later one may be too short to tell.
            (None, Shape::Columns { named, .. }) => spec.header = Some(*named),
            (None, Shape::Numbered { .. }) => {}
        }
        parts.push(part);
    }
    let folded = |(number, part)| folded(part, number, &spec);
    Ok((format.name, parts.into_iter().enumerate().map(folded).collect()))
}

/// Opens all parts of a data set and looks at their first rows.
///
/// # Errors
/// Bad words in `spec`, missing files, files of another format or with other columns.
pub fn glance(spec: &DataSpec) -> Result<()> {
    open(spec).map(|_| ())
}

/// Whether the rows have weights: a column of them, or a file beside the data.
///
/// # Errors
/// Bad words in `spec`, missing files.
pub fn weighted(spec: &DataSpec) -> Result<bool> {
    let beside = |place: &Place| -> Result<bool> {
        let text = SIDE_FILES.contains(&format_of(place, spec)?.name);
        Ok(text && file_path(place).is_some_and(|path| beside::weighs(&path)))
    };
    let mut weighted = spec.weight.is_some();
    for place in places(&spec.source)? {
        weighted = weighted || beside(&place)?;
    }
    Ok(weighted)
}

fn file_path(place: &Place) -> Option<PathBuf> {
    match place {
        Place::File(Input::File(path)) => Some(path.clone()),
        _ => None,
    }
}

fn same_columns(first: &dyn Rows, other: &dyn Rows) -> Result<()> {
    let differ = |what: String| {
        Err(Fault::caller(format!("{} differs from {}: {what}", other.name(), first.name()))
            .hint("files of one data set have the same columns in the same order"))
    };
    match (first.shape(), other.shape()) {
        (Shape::Columns { columns: a, .. }, Shape::Columns { columns: b, .. }) => {
            if a.len() != b.len() {
                return differ(format!("{} columns instead of {}", b.len(), a.len()));
            }
            match a.iter().zip(b).find(|(a, b)| a.name != b.name) {
                Some((a, b)) => differ(format!("column '{}' instead of '{}'", b.name, a.name)),
                None => Ok(()),
            }
        }
        (Shape::Numbered { width: Some(a), .. }, Shape::Numbered { width: Some(b), .. })
            if a != b =>
        {
            differ(format!("{b} numbers a row instead of {a}"))
        }
        _ => Ok(()),
    }
}

fn places(source: &Source) -> Result<Vec<Place>> {
    let place = match source {
        Source::Images { images, labels } => {
            return Ok(vec![Place::Pair(file(images)?, file(labels)?)]);
        }
        Source::Arrays { features, labels } => {
            let labels = labels.as_deref().map(file).transpose()?;
            return Ok(vec![Place::Arrays(file(features)?, labels)]);
        }
        Source::Place(place) => place,
    };
    if builtin::NAMES.contains(&place.as_str()) || place.starts_with("synthetic://") {
        return Ok(vec![Place::Named(place.clone())]);
    }
    #[cfg(feature = "remote")]
    if crate::remote::is_remote(place) {
        let files = crate::remote::open(place)?.into_iter();
        return Ok(files.map(|file| Place::File(Input::Remote(file))).collect());
    }
    if let Some((scheme, _)) = place.split_once("://") {
        return Err(Fault::caller(format!("{place}: this program does not read {scheme}:// addresses"))
            .hint("give a path, a pattern, a built-in or synthetic://…; s3://, https:// and hdfs:// are for builds with their features"));
    }
    let path = Path::new(place);
    let files = match path {
        _ if path.is_dir() => files_in(path)?,
        _ if !path.exists() && place.contains(['*', '?', '[']) => matches(place)?,
        _ => return Ok(vec![Place::File(file(place)?)]),
    };
    if files.is_empty() {
        return Err(Fault::caller(format!("{place}: there are no files"))
            .hint("a directory's own files are read, hidden ones and sub-directories are not"));
    }
    Ok(files.into_iter().map(|path| Place::File(Input::File(path))).collect())
}

fn file(place: &str) -> Result<Input> {
    let path = PathBuf::from(place);
    match std::fs::metadata(&path) {
        Ok(_) => Ok(Input::File(path)),
        Err(error) => {
            let fault = cannot_open(&path, &error);
            match nearest(place, builtin::NAMES) {
                Some(near) => Err(fault.hint(format!("did you mean the built-in '{near}'?"))),
                None => Err(fault),
            }
        }
    }
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| cannot_open(folder, &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        files.push(entry.map_err(failed)?.path());
    }
    files.retain(|path| path.is_file() && !is_hidden(path));
    files.sort();
    Ok(files)
}

fn matches(pattern: &str) -> Result<Vec<PathBuf>> {
    let wrong = |what: &dyn std::fmt::Display| {
        Fault::caller(format!("{pattern} is not a pattern of file names")).caused_by(what)
    };
    let mut files = Vec::new();
    for path in glob::glob(pattern).map_err(|error| wrong(&error))? {
        files.push(path.map_err(|error| wrong(&error))?);
    }
    files.retain(|path| path.is_file() && !is_hidden(path));
    files.sort();
    Ok(files)
}

/// Hidden files, and what other programs leave beside data (`_SUCCESS`, LightGBM's side files).
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| {
        let name = name.to_string_lossy();
        name.starts_with(['.', '_']) || name.ends_with(".query") || name.ends_with(".weight")
    })
}

fn name_of(place: &Place) -> String {
    match place {
        Place::File(input) | Place::Pair(input, _) | Place::Arrays(input, _) => input.name(),
        Place::Named(name) => name.clone(),
    }
}

fn format_of(place: &Place, spec: &DataSpec) -> Result<&'static Entry<Format>> {
    let named = |name: &str| Entry::find("format", SOURCES, name);
    let input = match place {
        Place::Named(name) if name.contains("://") => return named("synthetic"),
        Place::Named(_) => return named("builtin"),
        Place::Pair(..) => return named("idx"),
        Place::Arrays(..) => return named("npy"),
        Place::File(input) => input,
    };
    if let Some(format) = &spec.format {
        return named(format);
    }
    let by_extension = extension(&input.name())
        .and_then(|e| SOURCES.iter().find(|entry| entry.build.extensions.contains(&e.as_str())));
    if let Some(entry) = by_extension {
        return Ok(entry);
    }
    let mut head = Vec::new();
    input.open(None)?.append(HEAD_BYTES, &mut head)?;
    // The csv entry comes first in the catalogue and takes any text: ask it last.
    SOURCES.iter().rev().find(|entry| (entry.build.recognise)(&head)).ok_or_else(|| {
        Fault::caller(format!("{}: its format is not recognised", input.name()))
            .hint("say it in [data], such as `format = \"csv\"`")
    })
}

/// The ending of a name before `.gz` or `.zst`.
fn extension(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let plain = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name);
    Path::new(plain).extension().map(|e| e.to_string_lossy().into_owned())
}
