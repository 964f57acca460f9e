//! Documents point at files that exist: links to files of the project, and job files that a text tells the reader
//! to run.

use super::{Complaint, File};

/// Folders whose job files a text may name by their path from the root.
const JOB_FOLDERS: &[&str] = &["examples/", "book/", "bench/"];

pub(super) fn check(file: &File, exists: &dyn Fn(&str) -> bool) -> Vec<Complaint> {
    if !file.is_markdown() {
        return Vec::new();
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut complaints = Vec::new();
    let mut in_code = false;
    for (index, line) in file.text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        for target in targets(line).into_iter().filter(|_| !in_code) {
            if !exists(&join(folder, target)) {
                complaints.push(Complaint::at(
                    file,
                    index,
                    format!("link to '{target}', which does not exist"),
                ));
            }
        }
        for job in jobs(line) {
            if !exists(job) && !exists(&join(folder, job)) {
                complaints.push(Complaint::at(
                    file,
                    index,
                    format!("job file '{job}' does not exist"),
                ));
            }
        }
    }
    complaints
}

/// The files that a line links to, without fragments. Links to other sites, and within the page, are not files.
fn targets(line: &str) -> Vec<&str> {
    let starts = line.match_indices("](").map(|(at, mark)| at + mark.len());
    let inside = starts.filter_map(|start| line[start..].split_once(')').map(|(target, _)| target));
    let files = inside.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    files
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty())
        .collect()
}

/// The job files that a line names.
fn jobs(line: &str) -> Vec<&str> {
    let words = line.split(|c: char| !(c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_')));
    words
        .filter(|word| {
            word.ends_with(".toml") && JOB_FOLDERS.iter().any(|folder| word.starts_with(folder))
        })
        .collect()
}

/// A relative link seen from the root.
fn join(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> =
        if target.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn complaints(path: &str, text: &str) -> Vec<Complaint> {
        check(&file(path, text), &|path| {
            ["STYLE.md", "book/ring.md", "book/jobs/ring.toml"].contains(&path)
        })
    }

    #[test]
    fn a_link_to_a_missing_file_is_caught() {
        let good = "[style](../STYLE.md#names), [ring](ring.md), [site](https://example.org/x), [here](#top)";
        assert!(complaints("book/walk.md", good).is_empty());
        assert_eq!(complaints("book/walk.md", "[style](STYLE.md)").len(), 1);
        assert!(complaints("book/walk.md", "```\n[style](STYLE.md)\n```\n").is_empty());
    }

    #[test]
    fn a_missing_job_file_is_caught_in_code_too() {
        assert!(
            complaints("README.md", "```\nstarlings train book/jobs/ring.toml\n```\n").is_empty()
        );
        let bad = complaints("README.md", "```\nstarlings train book/jobs/tree.toml --json\n```\n");
        assert_eq!(
            bad,
            [Complaint::new("README.md:2", "job file 'book/jobs/tree.toml' does not exist")]
        );
        assert!(complaints("README.md", "starlings train JOB.toml").is_empty());
    }
}
