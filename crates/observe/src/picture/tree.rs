//! A decision tree as a picture: questions in boxes, the answer yes to the left, leaves at the end.

use super::{Anchor, Colour, INK, Letters, Picture, cut};

/// A node of a tree.
#[derive(Clone, PartialEq, Debug)]
pub struct Branch {
    /// A question, or what a leaf says.
    pub text: String,
    /// Training rows that came here.
    pub rows: f64,
    /// Where the rows go for which the question is answered yes, and where the others.
    pub children: Option<[usize; 2]>,
}

/// A tree; the first node is the root.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tree {
    /// Above.
    pub title: String,
    /// The nodes.
    pub branches: Vec<Branch>,
    /// Levels below the root that are drawn.
    pub depth_max: usize,
}

const LEVEL: f64 = 84.0;
const BOX: f64 = 40.0;
const GAP: f64 = 12.0;
/// Letters of a line in a box: the fewest leave room for "123456 rows, more below".
const LETTERS_MIN: usize = 23;
const LETTERS_MAX: usize = 26;
const QUESTION: Colour = [232, 240, 248];
const LEAF: Colour = [234, 246, 234];
const WHITE: Colour = [255; 3];
const FOLDED: Colour = [240, 240, 240];

/// A node with its place.
struct Placed {
    node: usize,
    depth: usize,
    /// The middle.
    x: f64,
    children: Vec<usize>,
}

impl Tree {
    /// As a picture.
    #[must_use]
    pub fn draw(&self) -> Picture {
        let longest = self.branches.iter().map(|branch| branch.text.chars().count()).max();
        let letters = longest.unwrap_or(0).clamp(LETTERS_MIN, LETTERS_MAX);
        let width = (letters as f64 + 2.0) * Letters::Plain.width();
        let mut placed = Vec::new();
        let mut next = GAP + width / 2.0;
        if !self.branches.is_empty() {
            self.place(0, 0, (&mut next, width + GAP), &mut placed);
        }
        let title = self.title.chars().count() as f64 * Letters::Title.width() + 40.0;
        let depth = placed.iter().map(|placed| placed.depth).max().unwrap_or(0) as f64;
        let across = (next - width / 2.0).max(title);
        let mut picture = Picture::new(across, 60.0 + depth * LEVEL + BOX + 20.0);
        picture.text((20.0, 30.0), &self.title, (Anchor::Start, Letters::Title));
        let top = |depth: usize| 60.0 + depth as f64 * LEVEL;
        for parent in &placed {
            let from = (parent.x, top(parent.depth) + BOX);
            for (&child, word) in parent.children.iter().zip(["yes", "no"]) {
                let child = &placed[child];
                let to = (child.x, top(child.depth));
                picture.lines(vec![from, to], 1.0, INK);
                let middle = (from.0 * 0.45 + to.0 * 0.55, from.1 * 0.45 + to.1 * 0.55 + 4.0);
                // On white, so that the line does not strike it through.
                picture.rectangle([middle.0 - 13.0, middle.1 - 10.0, 26.0, 13.0], WHITE, WHITE);
                picture.text(middle, word, (Anchor::Middle, Letters::Plain));
            }
        }
        for placed in &placed {
            let branch = &self.branches[placed.node];
            let fill = match (branch.children, placed.children.is_empty()) {
                (None, _) => LEAF,
                (Some(_), true) => FOLDED,
                _ => QUESTION,
            };
            let (left, top) = (placed.x - width / 2.0, top(placed.depth));
            picture.rectangle([left, top, width, BOX], fill, INK);
            let anchor = (Anchor::Middle, Letters::Plain);
            picture.text((placed.x, top + 16.0), &cut(&branch.text, letters), anchor);
            let rows = match branch.children.is_some() && placed.children.is_empty() {
                true => format!("{} rows, more below", branch.rows),
                false => format!("{} rows", branch.rows),
            };
            picture.text((placed.x, top + 32.0), &cut(&rows, letters), anchor);
        }
        picture
    }

    /// Gives leaves the next places from the left, and questions the middle of what is below them.
    fn place(
        &self,
        node: usize,
        depth: usize,
        (next, step): (&mut f64, f64),
        placed: &mut Vec<Placed>,
    ) -> usize {
        let open = self.branches[node].children.filter(|_| depth < self.depth_max);
        let children: Vec<usize> = open
            .into_iter()
            .flatten()
            .map(|child| self.place(child, depth + 1, (next, step), placed))
            .collect();
        let x = match children.as_slice() {
            [] => {
                *next += step;
                *next - step
            }
            below => below.iter().map(|&at| placed[at].x).sum::<f64>() / below.len() as f64,
        };
        placed.push(Placed { node, depth, x, children });
        placed.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_stand_above_the_middle_of_their_answers() {
        let leaf = |text: &str| Branch { text: text.into(), rows: 3.0, children: None };
        let mut tree = Tree {
            title: "tree 0".into(),
            branches: vec![
                Branch { text: "x <= 1".into(), rows: 9.0, children: Some([1, 2]) },
                leaf("a"),
                Branch { text: "y <= 2".into(), rows: 6.0, children: Some([3, 4]) },
                leaf("b"),
                leaf("c"),
            ],
            depth_max: 5,
        };
        let mut placed = Vec::new();
        tree.place(0, 0, (&mut 0.0, 10.0), &mut placed);
        let at = |node: usize| placed.iter().find(|placed| placed.node == node).unwrap().x;
        assert_eq!([1, 3, 4].map(at), [0.0, 10.0, 20.0]);
        assert_eq!((at(2), at(0)), (15.0, 7.5));
        let svg = tree.draw().svg();
        assert!(svg.contains(">x &lt;= 1<") && svg.contains(">9 rows<") && svg.contains(">yes<"));
        tree.depth_max = 1;
        let svg = tree.draw().svg();
        assert!(svg.contains("more below") && !svg.contains(">b<"), "{svg}");
        assert!(tree.draw().png().len() > 1000);
    }
}
