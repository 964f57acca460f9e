//! The project's own rules, after the `tidy` programs of rustc, rust-analyzer and TigerBeetle: what a compiler cannot
//! know and a reviewer should not have to say. Each rule is a pure function from texts to complaints, with a bad
//! example in its tests.

mod arrows;
mod catalogue;
mod links;
mod lock;
mod source;
mod words;

use std::path::{Path, PathBuf};

/// A text file of the project: its path from the root, with forward slashes, and its content.
pub(crate) struct File {
    path: String,
    text: String,
}

impl File {
    /// The last part of the path.
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether it is Rust source.
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is Markdown.
    fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// Something that breaks a rule: where, what, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Complaint {
    place: String,
    what: String,
}

impl Complaint {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Complaint {
        Complaint { place: place.into(), what: what.into() }
    }

    fn at(file: &File, line_index: usize, what: impl Into<String>) -> Complaint {
        Complaint::new(format!("{}:{}", file.path, line_index + 1), what)
    }
}

/// Applies all rules to the project.
///
/// # Errors
/// When a rule is broken or the project cannot be read; the complaints are printed.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let files = read(root)?;
    let exists = |path: &str| root.join(path).exists();
    let mut complaints = Vec::new();
    for file in &files {
        complaints.extend(source::check(file));
        complaints.extend(words::check(file));
        complaints.extend(links::check(file, &exists));
        complaints.extend(lock::check(file));
    }
    complaints.extend(catalogue::check(&files));
    complaints.extend(arrows::check(&arrows::edges(root)?));
    for complaint in &complaints {
        println!("{}: {}", complaint.place, complaint.what);
    }
    match complaints.len() {
        0 => Ok(()),
        many => Err(format!("{many} complaints in {} files", files.len())),
    }
}

/// All text files of the project, in order of their paths. What is built, fetched or recorded by a run is left out.
fn read(root: &Path) -> Result<Vec<File>, String> {
    const SKIPPED: &[&str] = &["target", ".git", "venv", "runs", "node_modules", "__pycache__"];
    const TEXTS: &[&str] = &["rs", "md", "toml", "py", "sh", "lock", "yml", "yaml", "json"];
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() && !SKIPPED.contains(&name) {
                folders.push(path);
            } else if path.is_file()
                && (name == "run" || extension.is_some_and(|e| TEXTS.contains(&e)))
            {
                files.push(read_one(root, &path)?);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn read_one(root: &Path, path: &PathBuf) -> Result<File, String> {
    let text = std::fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?;
    let inside = path.strip_prefix(root).expect("found below the root");
    Ok(File { path: inside.to_string_lossy().replace('\\', "/"), text })
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_string(), text: text.to_string() }
}
