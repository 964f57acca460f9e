//! Learns a schema from the rows themselves: means, categories and classes. Codes are given in the order of
//! first sight while rows pass, and sorted at the end, so that they do not depend on the order of rows.

use crate::chunk::{Chunk, Dictionary};
use crate::columns::{Beside, Choice};
use crate::encode::{append, encode, plain_number, recode};
use crate::groups::Grouping;
use crate::sources::{Flow, Shape};
use crate::spill::{self, Room};
use crate::{Column, ColumnKind, Encoding, Features, LabelNeed, Schema, Table, Target};
use starlings_core::Result;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the rows so far.
pub(crate) struct Learning<'a> {
    choice: Choice,
    encoding: Encoding,
    /// The raw rows, if they are to be kept.
    kept: Option<Kept<'a>>,
    /// Texts of features are not looked at: a preparation will.
    light: bool,
    slots: Vec<Slot>,
    classes: Dictionary,
    class_rows: Vec<u64>,
    pub(crate) rows: u64,
    grouping: Grouping,
    weight_sum: f64,
    weighted: bool,
    /// Entries of sparse rows.
    entries: u64,
    width: usize,
    /// Slots that were taken for numbers and hold texts.
    pub(crate) surprises: BTreeSet<usize>,
}

/// What is kept of the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keep<'a> {
    /// The rows themselves, as long as there is room; all of them where no room is given.
    Rows(Option<&'a Room>),
    /// What the columns hold, categories included.
    Columns,
    /// Of the features only whether they are numbers: a preparation looks at the rest.
    Kinds,
}

/// The raw rows.
struct Kept<'a> {
    room: Option<&'a Room>,
    features: Features,
    labels: Vec<f32>,
    weights: Vec<f32>,
    groups: Vec<u32>,
}

impl<'a> Kept<'a> {
    fn new(features: Features, room: Option<&'a Room>) -> Kept<'a> {
        Kept { room, features, labels: vec![], weights: vec![], groups: vec![] }
    }

    /// Whether there is room for the rows encoded.
    fn fits(&self, rows: u64, schema: &Schema) -> bool {
        let raw = spill::bytes(&self.features);
        // Encoded sparse, a row has an entry of 8 bytes at most for each 4 bytes of its raw columns.
        let encoded = match &self.features {
            Features::Dense { .. } => (4 * rows * schema.features as u64).min(2 * raw).max(raw),
            Features::Sparse { .. } => raw,
        };
        self.room.is_none_or(|room| room.holds(encoded))
    }
}

#[derive(Default)]
struct Slot {
    sum: f64,
    present: u64,
    texts: Dictionary,
}

/// What was learnt.
pub(crate) struct Learnt {
    pub(crate) schema: Schema,
    pub(crate) class_rows: Vec<u64>,
    pub(crate) entries: Option<u64>,
    pub(crate) beside: Beside,
    /// Rows of each group; empty where there are no groups.
    pub(crate) group_rows: Vec<u32>,
    /// The keys of groups whose rows stand anywhere.
    pub(crate) keys: Option<Vec<String>>,
    pub(crate) table: Option<Table>,
}

impl<'a> Learning<'a> {
    /// Rows of a group may stand anywhere.
    pub(crate) fn scattered(mut self) -> Learning<'a> {
        self.grouping = Grouping::scattered();
        self
    }

    pub(crate) fn new(
        choice: Choice,
        encoding: Encoding,
        shape: &Shape,
        keep: Keep<'a>,
    ) -> Learning<'a> {
        let slots = choice.reading.texts.len();
        let features = match shape {
            Shape::Numbered { sparse: true, .. } => {
                Features::Sparse { width: 0, starts: vec![0], columns: vec![], values: vec![] }
            }
            Shape::Numbered { width, .. } => {
                Features::Dense { width: width.unwrap_or(0), values: vec![] }
            }
            Shape::Columns { .. } => Features::Dense { width: slots, values: vec![] },
        };
        Learning {
            choice,
            encoding,
            kept: match keep {
                Keep::Rows(room) => Some(Kept::new(features, room)),
                Keep::Columns | Keep::Kinds => None,
            },
            light: matches!(keep, Keep::Kinds),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            classes: Dictionary::default(),
            class_rows: vec![],
            rows: 0,
            grouping: Grouping::default(),
            weight_sum: 0.0,
            weighted: false,
            entries: 0,
            width: 0,
            surprises: BTreeSet::new(),
        }
    }

    /// Takes the next rows.
    pub(crate) fn add(&mut self, name: &str, mut chunk: Chunk) -> Result<Flow> {
        self.surprises.extend(chunk.surprises.iter().map(|surprise| surprise.slot));
        if !self.surprises.is_empty() {
            return Ok(Flow::Stop);
        }
        for (slot, known) in self.slots.iter_mut().enumerate() {
            let (sum, present) = chunk.sums[slot];
            known.sum += sum;
            known.present += present;
            if let Some(seen) = chunk.texts[slot].as_ref().filter(|_| !self.light) {
                let map = merge(&mut known.texts, seen)?;
                if self.kept.is_some() {
                    recode(&mut chunk.features, slot, &map);
                }
            }
        }
        if let Some(seen) = &chunk.classes {
            let map = merge(&mut self.classes, seen)?;
            self.class_rows.resize(self.classes.texts().len(), 0);
            for label in chunk.labels.iter_mut().filter(|label| !label.is_nan()) {
                *label = map[*label as usize];
                self.class_rows[*label as usize] += 1;
            }
        }
        self.rows += chunk.rows as u64;
        self.width = self.width.max(match &chunk.features {
            Features::Dense { width, .. } | Features::Sparse { width, .. } => *width,
        });
        if let Features::Sparse { columns, .. } = &chunk.features {
            self.entries += columns.len() as u64;
        }
        let groups = self.grouping.add(name, &chunk)?;
        self.weight_sum += chunk.weights.iter().map(|weight| f64::from(*weight)).sum::<f64>();
        self.weighted |= !chunk.weights.is_empty();
        if let Some(kept) = &mut self.kept {
            append(&mut kept.features, &chunk.features);
            kept.weights.extend_from_slice(&chunk.weights);
            kept.groups.extend_from_slice(&groups);
            kept.labels.extend_from_slice(&chunk.labels);
            let holds = kept.room.is_none_or(|room| room.holds(spill::bytes(&kept.features)));
            // They will be read once more, by what was learnt, into a file.
            self.kept = self.kept.take().filter(|_| holds);
        }
        Ok(Flow::More)
    }

    /// Whether rows have weights and none of them counts.
    pub(crate) fn weightless(&self) -> bool {
        self.weighted && self.weight_sum <= 0.0
    }

    /// The schema, and the rows encoded by it.
    pub(crate) fn finish(mut self, sparse: bool) -> Learnt {
        let reading = &self.choice.reading;
        let mut columns = Vec::with_capacity(self.slots.len());
        for (slot, known) in self.slots.iter().enumerate() {
            let position = self.choice.features[slot];
            let kind = match reading.texts[slot] {
                false => ColumnKind::Numeric { mean: known.sum / known.present.max(1) as f64 },
                true => {
                    let (codes, map) = sorted(known.texts.texts());
                    if let Some(kept) = &mut self.kept {
                        recode(&mut kept.features, slot, &map);
                    }
                    ColumnKind::Categorical { codes }
                }
            };
            let name = reading.names[position].clone();
            columns.push(Column { name, position, kind, missing: self.rows - known.present });
        }
        let (target, class_rows) = self.target();
        let encoding = self.encoding;
        let features = match columns.is_empty() {
            true => self.width,
            false => columns.iter().map(|column| column.features(encoding)).sum(),
        };
        let label = self.choice.label.clone();
        let schema = Schema { columns, encoding, features, target, label };
        let kept = self.kept.take().filter(|kept| kept.fits(self.rows, &schema));
        let table = kept.map(|mut kept| {
            if let Features::Dense { values, .. } = &mut kept.features {
                values.shrink_to_fit();
            }
            kept.labels.shrink_to_fit();
            let Kept { features, labels, weights, groups, .. } = kept;
            Table { features: encode(features, &schema).into(), labels, weights, groups }
        });
        let entries = sparse.then_some(self.entries);
        let beside = self.choice.beside.clone();
        let (group_rows, keys) = self.grouping.finish();
        Learnt { schema, class_rows, entries, beside, group_rows, keys, table }
    }

    /// Sorted classes; those that are written differently but are one number are one class.
    fn target(&mut self) -> (Target, Vec<u64>) {
        match self.choice.reading.label {
            LabelNeed::None => return (Target::None, vec![]),
            LabelNeed::Number => return (Target::Number, vec![]),
            LabelNeed::Class | LabelNeed::SomeClasses => {}
        }
        let seen = self.classes.texts();
        let plain: Option<Vec<String>> = seen.iter().map(|text| plain_number(text)).collect();
        let texts = plain.unwrap_or_else(|| seen.to_vec());
        let distinct: Vec<String> =
            texts.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let (classes, _) = sorted(&distinct);
        let codes: BTreeMap<&str, usize> =
            classes.iter().enumerate().map(|(code, text)| (text.as_str(), code)).collect();
        let map: Vec<usize> = texts.iter().map(|text| codes[text.as_str()]).collect();
        let mut class_rows = vec![0; classes.len()];
        for (seen, code) in map.iter().enumerate() {
            class_rows[*code] += self.class_rows[seen];
        }
        if let Some(kept) = &mut self.kept {
            let labels = kept.labels.iter_mut().filter(|label| !label.is_nan());
            labels.for_each(|label| *label = map[*label as usize] as f32);
        }
        (Target::Classes(classes), class_rows)
    }
}

/// Adds a chunk's texts to those known; the codes of the chunk as known codes.
fn merge(known: &mut Dictionary, seen: &Dictionary) -> Result<Vec<f32>> {
    seen.texts().iter().map(|text| known.code(text).map(|code| code as f32)).collect()
}

/// Texts in the order of codes (of numbers, if all are numbers), and where each went.
pub(crate) fn sorted(texts: &[String]) -> (Vec<String>, Vec<f32>) {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    let numbers: Option<Vec<f64>> = texts.iter().map(|text| text.parse().ok()).collect();
    match &numbers {
        Some(numbers) => order.sort_by(|&a, &b| {
            numbers[a].total_cmp(&numbers[b]).then_with(|| texts[a].cmp(&texts[b]))
        }),
        None => order.sort_by(|&a, &b| texts[a].cmp(&texts[b])),
    }
    let mut map = vec![0.0; texts.len()];
    for (code, &seen) in order.iter().enumerate() {
        map[seen] = code as f32;
    }
    (order.iter().map(|&seen| texts[seen].clone()).collect(), map)
}
