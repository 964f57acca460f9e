//! A table of findings in the forms that people and programs read: Markdown with the machine's description, and CSV.

use super::machine::Machine;
use std::fmt::Write as _;
use std::path::Path;

/// A table.
pub(super) struct Sheet {
    pub(super) title: String,
    /// Paragraphs above the table.
    pub(super) notes: Vec<String>,
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Sheet {
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n", self.title);
        for note in &self.notes {
            let _ = writeln!(text, "{note}\n");
        }
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let header: Vec<String> = self.header.iter().map(|&word| word.to_string()).collect();
        let _ = writeln!(text, "{}", line(&header));
        let _ = writeln!(text, "|---|{}", "---:|".repeat(self.header.len() - 1));
        for row in &self.rows {
            let _ = writeln!(text, "{}", line(row));
        }
        text
    }

    pub(super) fn csv(&self) -> String {
        let field = |cell: &str| match cell.contains([',', '"']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.to_string(),
        };
        let header: Vec<String> = self.header.iter().map(|word| field(word)).collect();
        let mut text = header.join(",") + "\n";
        for row in &self.rows {
            text += &row.iter().map(|cell| field(cell)).collect::<Vec<_>>().join(",");
            text.push('\n');
        }
        text
    }
}

/// Sheets and pictures of one suite, to be written into the folder of the run.
#[derive(Default)]
pub(super) struct Finding {
    /// A sentence below the machine's description.
    pub(super) preface: Option<String>,
    /// The names of files, without endings, and their tables.
    pub(super) sheets: Vec<(String, Sheet)>,
    /// The names of files, without endings, and SVG.
    pub(super) pictures: Vec<(String, String)>,
    /// What did not run and why.
    pub(super) skipped: Vec<String>,
}

impl Finding {
    pub(super) fn skip(&mut self, what: String) {
        eprintln!("skipped: {what}");
        self.skipped.push(what);
    }

    /// Writes everything below `bench/runs`, and returns the text.
    pub(super) fn write(
        &self,
        folder: &Path,
        (name, machine): (&str, &Machine),
    ) -> Result<String, String> {
        let mut text = format!("# {name} of {}\n\n{}\n", machine.date, machine.sentence());
        if let Some(preface) = &self.preface {
            let _ = write!(text, "\n{preface}\n");
        }
        let save = |file: String, content: &str| {
            let path = folder.join(file);
            std::fs::write(&path, content).map_err(|why| format!("{}: {why}", path.display()))
        };
        std::fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        for (file, sheet) in &self.sheets {
            let _ = write!(text, "\n{}", sheet.markdown());
            save(format!("{file}.csv"), &sheet.csv())?;
        }
        for (file, picture) in &self.pictures {
            let _ = write!(text, "\n![{file}]({file}.svg)\n");
            save(format!("{file}.svg"), picture)?;
        }
        for skipped in &self.skipped {
            let _ = write!(text, "\nSkipped: {skipped}\n");
        }
        save(format!("{name}.md"), &text)?;
        Ok(text)
    }
}

/// Bytes in a unit that suits.
pub(super) fn bytes(count: f64) -> String {
    match count {
        c if c.is_nan() => "?".to_string(),
        c if c < 1e6 => format!("{:.0} kB", c / 1e3),
        c => format!("{:.1} MB", c / 1e6),
    }
}

/// A number, or a sign that there is none.
pub(super) fn number(value: Option<f64>, digits: usize) -> String {
    value
        .filter(|value| value.is_finite())
        .map_or("–".to_string(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_has_two_forms() {
        let sheet = Sheet {
            title: "Codecs".to_string(),
            notes: vec!["A note.".to_string()],
            header: vec!["codec", "seconds"],
            rows: vec![vec!["half, fp16".to_string(), number(Some(1.25), 1)]],
        };
        assert!(
            sheet
                .markdown()
                .ends_with("A note.\n\n| codec | seconds |\n|---|---:|\n| half, fp16 | 1.2 |\n")
        );
        assert_eq!(sheet.csv(), "codec,seconds\n\"half, fp16\",1.2\n");
        assert_eq!((bytes(2.5e6), number(None, 1)), ("2.5 MB".to_string(), "–".to_string()));
    }
}
