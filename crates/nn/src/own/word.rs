//! The words of a line of `compute`: names, numbers, and signs. A name may have hyphens inside, as `max-pool` has, so a
//! minus stands between spaces.

/// One word.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Word {
    /// A name: of a value, a size, a layer or a function.
    Name(String),
    /// A number.
    Number(f64),
    /// Something that starts with a digit and is no number, such as `3x3`.
    Raw(String),
    /// One of `+ - * / ( ) ,`.
    Sign(char),
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Name(text) | Word::Raw(text) => write!(f, "{text}"),
            Word::Number(number) => write!(f, "{number}"),
            Word::Sign(sign) => write!(f, "{sign}"),
        }
    }
}

/// Whether a text is a name.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_inside)
}

fn is_inside(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Cuts a text into words.
///
/// # Errors
/// A character that is part of none.
pub(super) fn words(text: &str) -> Result<Vec<Word>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            c if c.is_ascii_alphabetic() => {
                let end = rest.find(|c| !is_inside(c)).unwrap_or(rest.len());
                found.push(Word::Name(rest[..end].to_string()));
                end
            }
            c if c.is_ascii_digit() => {
                let inside = |c: char| c.is_ascii_alphanumeric() || c == '.';
                let mut end = rest.find(|c| !inside(c)).unwrap_or(rest.len());
                // The exponent of 1e-5 has a sign.
                if rest[..end].ends_with('e') && rest[end..].starts_with('-') {
                    let digits = rest[end + 1..].find(|c: char| !c.is_ascii_digit());
                    end = digits.map_or(rest.len(), |digits| end + 1 + digits);
                }
                let word = rest[..end].to_string();
                found.push(word.parse().map_or(Word::Raw(word), Word::Number));
                end
            }
            sign @ ('+' | '-' | '*' | '/' | '(' | ')' | ',') => {
                found.push(Word::Sign(sign));
                1
            }
            other => return Err(format!("'{other}' is not understood")),
        };
        rest = rest[taken..].trim_start();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyphens_belong_to_names_and_signs_stand_apart() {
        let found = words("max-pool(a - 1e-5, 3x3, stride 2)").unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let told = "max-pool ( a - 0.00001 , 3x3 , stride 2 )";
        assert_eq!(found.join(" "), told);
        assert!(words("a ^ b").unwrap_err().contains("'^'"));
    }
}
