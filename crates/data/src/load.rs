//! The four ways to rows. `survey` reads everything once (more often where a preparation is fitted) and keeps only
//! what it learnt; `load` reads a worker's shards by a survey; `load_all` does both; `load_with` reads raw files by the
//! schema that a model carries.

use crate::chunk::{Chunk, Mark};
use crate::columns::{by_schema, choose};
use crate::encode::{Fitting, dictionary, relabel};
use crate::folds::pick;
use crate::groups::Groups;
use crate::input::{Tally, changed};
use crate::learning::{Keep, Learning};
use crate::partition::{is_scattered, load_arranged, without_groups};
use crate::prepare::{Census, Fitter, Labels, Prepared};
use crate::sources::{Flow, Reading, Request, Rows, Shape};
use crate::{
    Arrangement, ColumnKind, ColumnRef, DataSpec, Encoding, Features, Holding, Intake, LabelNeed,
    Partition, Room, Schema, Share, Table, Target, arrange, locate,
};
use serde::{Deserialize, Serialize};
use starlings_core::{Fault, Result, Shard};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// What a data set holds, without its rows: enough for any worker to read any shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Survey {
    /// The format, an entry of [`SOURCES`](crate::SOURCES).
    pub format: String,
    /// Rows in all.
    pub rows: u64,
    /// What the columns mean, with the number of missing values of each.
    pub schema: Schema,
    /// Rows of each class; empty when labels are no classes, or when classes were not counted (synthetic).
    pub class_rows: Vec<u64>,
    /// Entries of sparse rows, where they were counted.
    pub entries: Option<u64>,
    /// How files become rows, besides what the schema says.
    pub intake: Intake,
    /// Rows of each group, in the order of rows; empty where rows belong to no groups.
    pub group_rows: Vec<u32>,
    /// The order of rows, where it is not that of the files.
    #[serde(default)]
    pub arrangement: Arrangement,
    /// The files in the order of rows.
    pub files: Vec<FilePlan>,
    /// BLAKE3 of the file's bytes, in hexadecimal; of the files' digests when there are several.
    pub digest: String,
}

/// How to read one file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FilePlan {
    /// Its name, for people: another worker may see it elsewhere.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Its size on disk, by which a changed file is noticed.
    pub bytes: u64,
    /// Where reading can start.
    pub marks: Vec<Mark>,
}

/// Most marks of a file; beyond that every second is forgotten.
const MARKS_MAX: usize = 4096;

/// Numbers of a piece, if rows are dense.
const PIECE_NUMBERS: usize = 1 << 22;

/// Reads everything once and says what it is.
///
/// # Errors
/// Bad words in `spec`, missing or damaged files, ragged rows, missing labels, no rows at all. Each names
/// the place.
pub fn survey(spec: &DataSpec, encoding: Encoding, label: LabelNeed) -> Result<Survey> {
    study(spec, encoding, label, Keep::Columns).map(|(survey, _)| survey)
}

/// Reads everything once, for one process that holds all shards.
///
/// ```
/// use starlings_data::{DataSpec, Encoding, LabelNeed, load_all};
/// let spec = DataSpec::new("digits");
/// let (survey, holding) = load_all(&spec, Encoding::OneHot, LabelNeed::Class, 16)?;
/// assert_eq!((survey.rows, survey.schema.features, survey.schema.classes()), (1438, 64, 10));
/// assert_eq!(holding.table.rows(), 1438);
/// # Ok::<(), starlings_core::Fault>(())
/// ```
///
/// # Errors
/// As [`survey`].
pub fn load_all(
    spec: &DataSpec,
    encoding: Encoding,
    label: LabelNeed,
    shards: u32,
) -> Result<(Survey, Holding)> {
    load_all_within(spec, (encoding, label), shards, None)
}

/// The same, with what does not fit into the room in a file. Where rows must go there, they are read twice.
///
/// # Errors
/// As [`survey`]; a full disk.
pub fn load_all_within(
    spec: &DataSpec,
    (encoding, label): (Encoding, LabelNeed),
    shards: u32,
    room: Option<&Room>,
) -> Result<(Survey, Holding)> {
    let (survey, table) = study(spec, encoding, label, Keep::Rows(room))?;
    if let Some(table) = table {
        return Ok((survey, Holding::whole(Arc::new(table), shards)));
    }
    let survey = arrange(spec, survey, shards)?;
    let all: Vec<Shard> = (0..shards).map(Shard).collect();
    let holding = load_within(spec, &survey, (&all, shards), room)?;
    Ok((survey, holding))
}

/// Reads only the rows of these shards.
///
/// # Errors
/// Files that are missing, damaged or changed since the survey; a shard that does not exist.
pub fn load(spec: &DataSpec, survey: &Survey, keep: &[Shard], shards: u32) -> Result<Holding> {
    load_within(spec, survey, (keep, shards), None)
}

/// The same, with what does not fit into the room in a file.
///
/// # Errors
/// As [`load`]; a full disk.
pub fn load_within(
    spec: &DataSpec,
    survey: &Survey,
    (keep, shards): (&[Shard], u32),
    room: Option<&Room>,
) -> Result<Holding> {
    let keep: BTreeSet<Shard> = keep.iter().copied().collect();
    if let Some(beyond) = keep.iter().find(|shard| shard.0 >= shards) {
        return Err(Fault::caller(format!("there is no {beyond} of {shards}")));
    }
    if survey.arrangement.moves() {
        return load_arranged(spec, survey, (&keep, shards), room);
    }
    let (_, parts) = locate::open(spec)?;
    let reading = prepare_reading(spec, survey, &parts)?;
    let (schema, prepared) = (&survey.schema, &survey.intake.prepared);
    let groups = Groups::new(&survey.group_rows, shards).map(Arc::new);
    let table = Arc::new(Table::new(Features::Dense { width: 0, values: vec![] }, vec![]));
    let starts = BTreeMap::new();
    let mut holding = Holding { table, starts, rows_total: survey.rows, shards, groups };
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut held = 0;
    for shard in keep {
        let start = holding.shard_start(shard);
        let end = start + holding.shard_rows(shard);
        holding.starts.insert(shard, held as usize);
        held += end - start;
        match ranges.last_mut().filter(|range| range.end == start) {
            Some(range) => range.end = end,
            None => ranges.push(start..end),
        }
    }
    let mut fitting = Fitting::new(schema, prepared, room)?;
    fitting.expect(held, survey.rows);
    for range in &ranges {
        fitting.next_row = Some(range.start);
        let mut first = 0;
        for (part, plan) in parts.iter().zip(&survey.files) {
            let from = range.start.clamp(first, first + plan.rows) - first;
            let to = range.end.clamp(first, first + plan.rows) - first;
            let request =
                Request { reading: &reading, rows: from..to, marks: &plan.marks, tally: None };
            if from < to {
                read_rows(part.as_ref(), &request, &mut |chunk| {
                    fitting.add(&part.name(), chunk).map(|_| ())
                })?;
            }
            first += plan.rows;
        }
    }
    let mut table = fitting.finish()?;
    if let Some(groups) = &holding.groups {
        let rows = ranges.into_iter().flatten();
        table.groups = rows.map(|row| groups.of_row(row) as u32).collect();
    }
    holding.table = Arc::new(table);
    Ok(holding)
}

/// How the files of a survey are read: they must be those that it has seen.
pub(crate) fn prepare_reading(
    spec: &DataSpec,
    survey: &Survey,
    parts: &[Box<dyn Rows>],
) -> Result<Reading> {
    unchanged(spec, survey, parts)?;
    let schema = &survey.schema;
    let shape = parts[0].shape();
    let need = need_of(schema);
    let mut reading = choose(&parts[0].name(), shape, spec, schema.encoding, need)?.reading;
    let prepared = &survey.intake.prepared;
    let columns = if prepared.is_empty() { &schema.columns } else { &prepared.raw };
    if reading.texts.len() != columns.len() {
        return Err(changed(&parts[0].name()));
    }
    for (text, column) in reading.texts.iter_mut().zip(columns) {
        *text = matches!(column.kind, ColumnKind::Categorical { .. });
    }
    // The survey knows the groups already, but not which row has which key, nor which is in which fold.
    without_groups(&mut reading, is_scattered(spec) || spec.fold.is_some());
    Ok(reading)
}

/// Reads raw files by the schema of a model. Columns are found by name where the file has a header, else by
/// position. Labels are empty if the file has no label column. A category that the model has not seen becomes
/// no feature (one-hot) or NaN (identity: the learner decides what an unknown user means); a feature number
/// beyond the model's is left out.
///
/// # Errors
/// As [`survey`]; columns that the model needs and the file lacks; labels that are no class of the model.
pub fn load_with(spec: &DataSpec, schema: &Schema, intake: &Intake) -> Result<Table> {
    let table = load_with_share(spec, schema, intake, Share::WHOLE)?;
    match table.rows() {
        0 => Err(no_rows(spec)),
        _ => Ok(table),
    }
}

/// As [`load_with`], but only the rows of a share, which may be none.
///
/// # Errors
/// As [`load_with`].
pub fn load_with_share(
    spec: &DataSpec,
    schema: &Schema,
    intake: &Intake,
    share: Share,
) -> Result<Table> {
    let mut all = None;
    read_with(spec, (schema, intake), (share, usize::MAX), &mut |table| {
        all = Some(table);
        Ok(())
    })?;
    all.ok_or_else(|| no_rows(spec))
}

/// How many rows of a schema to read at a time, where each is looked at once: some megabytes.
#[must_use]
pub fn piece_rows(schema: &Schema) -> usize {
    (PIECE_NUMBERS / schema.features.max(1)).clamp(256, 1 << 16)
}

/// As [`load_with_share`], in pieces of hardly more than so many rows, each forgotten when the next is read: there is at
/// least one, which may have no rows. Rows of groups are one piece, lest a group be cut.
///
/// # Errors
/// As [`load_with`], and those of whoever takes the pieces.
pub fn read_with(
    spec: &DataSpec,
    (schema, intake): (&Schema, &Intake),
    (share, most): (Share, usize),
    take: &mut dyn FnMut(Table) -> Result<()>,
) -> Result<()> {
    let prepared = &intake.prepared;
    let raw =
        Schema { columns: prepared.raw.clone(), features: prepared.raw_width, ..schema.clone() };
    let raw = if prepared.is_empty() { schema } else { &raw };
    // The model's names tell a header from a row of texts.
    let names = raw.columns.iter().map(|column| ColumnRef::Name(column.name.clone()));
    let (_, parts) = locate::open(&DataSpec { features: Some(names.collect()), ..spec.clone() })?;
    let mut fitting = Fitting::new(schema, prepared, None)?;
    if is_scattered(spec) {
        fitting.scattered();
    }
    let (mut row, mut taken) = (0, false);
    for part in &parts {
        let reading = by_schema(&part.name(), part.shape(), spec, (raw, &intake.beside))?;
        let request = Request { reading: &reading, rows: 0..u64::MAX, marks: &[], tally: None };
        part.read(&request, &mut |mut chunk| {
            let mine = (0..chunk.rows).filter(|&at| share.has(row + at as u64));
            let mine: Vec<usize> = mine.collect();
            row += chunk.rows as u64;
            pick(&mut chunk, &mine)?;
            if mine.is_empty() {
                return Ok(Flow::More);
            }
            let flow = fitting.add(&part.name(), chunk)?;
            if fitting.rows() >= most && !fitting.has_groups() {
                taken = true;
                take(fitting.piece()?)?;
            }
            Ok(flow)
        })?;
    }
    match taken && fitting.rows() == 0 {
        true => Ok(()),
        false => take(fitting.finish()?),
    }
}

/// Whether rows are to lie otherwise than in the files.
fn rearranged(spec: &DataSpec) -> bool {
    matches!(spec.partition, Some(Partition::Key(_) | Partition::Sort(_)))
}

/// The survey has refused rows without a label already, where the learner wants every row to have one.
fn need_of(schema: &Schema) -> LabelNeed {
    match schema.target {
        Target::None => LabelNeed::None,
        Target::Classes(_) => LabelNeed::SomeClasses,
        Target::Number => LabelNeed::Number,
    }
}

fn no_rows(spec: &DataSpec) -> Fault {
    Fault::caller(format!("{} has no rows", spec.source.text()))
        .hint("is it the right file, and was it written fully?")
}

fn unchanged(spec: &DataSpec, survey: &Survey, parts: &[Box<dyn Rows>]) -> Result<()> {
    if parts.len() != survey.files.len() {
        return Err(changed(&spec.source.text()).caused_by(format!(
            "{} files instead of {}",
            parts.len(),
            survey.files.len()
        )));
    }
    for (part, plan) in parts.iter().zip(&survey.files) {
        if part.size()? != plan.bytes {
            return Err(changed(&part.name()).caused_by(format!(
                "{} bytes instead of {}",
                part.size()?,
                plan.bytes
            )));
        }
    }
    Ok(())
}

/// Reads exactly the rows of a request.
pub(crate) fn read_rows(
    part: &dyn Rows,
    request: &Request<'_>,
    take: &mut dyn FnMut(Chunk) -> Result<()>,
) -> Result<()> {
    let name = part.name();
    let mut next = request.rows.start;
    part.read(request, &mut |mut chunk| {
        let end = chunk.first_row + chunk.rows as u64;
        let (from, to) =
            (next.clamp(chunk.first_row, end), request.rows.end.clamp(chunk.first_row, end));
        if from < to {
            let origin = chunk.first_row;
            chunk.crop((from - origin) as usize..(to - origin) as usize);
            next = to;
            take(chunk)?;
        }
        Ok(if next < request.rows.end { Flow::More } else { Flow::Stop })
    })?;
    match next == request.rows.end {
        true => Ok(()),
        false => Err(changed(&name).caused_by(format!("row {next} is gone"))),
    }
}

fn study(
    spec: &DataSpec,
    encoding: Encoding,
    label: LabelNeed,
    keep: Keep<'_>,
) -> Result<(Survey, Option<Table>)> {
    spec.check_partition()?;
    let (format, parts) = locate::open(spec)?;
    let plain = spec.prepare.is_empty();
    // Rows that must move are read once more when it is known where to.
    let keep = if rearranged(spec) { Keep::Columns } else { keep };
    if plain
        && !rearranged(spec)
        && let Some((rows, schema)) = parts[0].known(encoding, label)?
    {
        return known(spec, (format, parts[0].as_ref()), (rows, schema), keep);
    }
    let shape = parts[0].shape();
    let mut choice = choose(&parts[0].name(), shape, spec, encoding, label)?;
    loop {
        let keep_now = if plain { keep } else { Keep::Kinds };
        let mut learning = Learning::new(choice.clone(), encoding, shape, keep_now);
        if is_scattered(spec) {
            learning = learning.scattered();
        }
        let (mut files, mut digests) = (Vec::new(), Vec::new());
        for part in &parts {
            let tally = Tally::default();
            let request = Request {
                reading: &choice.reading,
                rows: 0..u64::MAX,
                marks: &[],
                tally: Some(&tally),
            };
            files.push(pass(part.as_ref(), &request, &mut learning)?);
            digests.push(tally.digest());
        }
        if !learning.surprises.is_empty() {
            // The first lines looked like numbers, and a later one is text: once more, knowing that.
            for slot in learning.surprises {
                choice.reading.texts[slot] = true;
            }
            continue;
        }
        let (mut survey, table) = learnt(spec, format, shape, learning)?;
        (survey.files, survey.digest) = (files, joined(&digests));
        return match plain {
            true => {
                let table = match table {
                    None => reread(spec, &survey, keep)?,
                    table => table,
                };
                Ok((survey, table))
            }
            false => prepared(spec, survey, (&parts, &choice.reading), keep),
        };
    }
}

/// What one reading of everything has shown.
fn learnt(
    spec: &DataSpec,
    format: &str,
    shape: &Shape,
    learning: Learning<'_>,
) -> Result<(Survey, Option<Table>)> {
    if learning.rows == 0 {
        return Err(no_rows(spec));
    }
    if learning.weightless() {
        return Err(Fault::caller(format!("{}: all weights are 0", spec.source.text())));
    }
    let rows = learning.rows;
    let sparse = matches!(shape, Shape::Numbered { sparse: true, .. });
    let learnt = learning.finish(sparse);
    if learnt.schema.features == 0 && spec.prepare.is_empty() {
        return Err(Fault::caller(format!("{} has no features", spec.source.text())));
    }
    let survey = Survey {
        format: format.to_string(),
        rows,
        schema: learnt.schema,
        class_rows: learnt.class_rows,
        entries: learnt.entries,
        intake: Intake { beside: learnt.beside, prepared: Prepared::default() },
        group_rows: learnt.group_rows,
        arrangement: learnt.keys.map_or(Arrangement::AsRead, Arrangement::Keys),
        files: vec![],
        digest: String::new(),
    };
    Ok((survey, learnt.table))
}

/// Fits the preparation: one reading for each layer of its steps, and one to see what they leave.
fn prepared(
    spec: &DataSpec,
    mut survey: Survey,
    (parts, reading): (&[Box<dyn Rows>], &Reading),
    keep: Keep<'_>,
) -> Result<(Survey, Option<Table>)> {
    let encoding = survey.schema.encoding;
    if encoding == Encoding::Identity {
        return Err(Fault::caller("[[prepare]]: the learner wants identities as they are"));
    }
    let raw = std::mem::take(&mut survey.schema.columns);
    let classes = match &survey.schema.target {
        Target::Classes(classes) => Some(dictionary(classes)?),
        _ => None,
    };
    let count = survey.schema.classes();
    let rows = |take: &mut dyn FnMut(Chunk, u64) -> Result<()>| -> Result<()> {
        let mut row = 0;
        for (part, plan) in parts.iter().zip(&survey.files) {
            let request = Request { reading, rows: 0..plan.rows, marks: &[], tally: None };
            part.read(&request, &mut |mut chunk| {
                if let Some(classes) = &classes {
                    relabel(&part.name(), &mut chunk, classes)?;
                }
                let first_row = row;
                row += chunk.rows as u64;
                take(chunk, first_row).map(|()| Flow::More)
            })?;
        }
        Ok(())
    };
    let mut fitter = Fitter::new(raw.clone(), &spec.prepare)?;
    while fitter.begin()? {
        rows(&mut |mut chunk, first_row| {
            let values = std::mem::take(&mut chunk.labels);
            fitter.add(&mut chunk, &Labels { values: &values, classes: count, first_row })
        })?;
        fitter.end()?;
    }
    let raw_width = survey.schema.features;
    let mut done = Prepared { raw, steps: fitter.steps, outputs: vec![], sparse: false, raw_width };
    let mut census = Census::default();
    rows(&mut |mut chunk, first_row| census.add(&done.apply(&mut chunk, Some(first_row))?))?;
    let found = census.finish(&done.steps, encoding)?;
    (done.outputs, done.sparse) = (found.outputs, found.sparse);
    (survey.schema.columns, survey.schema.features) = (found.columns, found.features);
    survey.intake.prepared = done;
    let table = reread(spec, &survey, keep)?;
    Ok((survey, table))
}

/// All rows, read by a survey, if they are wanted.
fn reread(spec: &DataSpec, survey: &Survey, keep: Keep<'_>) -> Result<Option<Table>> {
    let Keep::Rows(room) = keep else { return Ok(None) };
    let whole = load_within(spec, survey, (&[Shard(0)], 1), room)?;
    Ok(Some(Arc::try_unwrap(whole.table).expect("just made, with one owner")))
}

/// One pass over one file.
fn pass(part: &dyn Rows, request: &Request<'_>, learning: &mut Learning<'_>) -> Result<FilePlan> {
    let mut plan = FilePlan { name: part.name(), rows: 0, bytes: part.size()?, marks: Vec::new() };
    let name = part.name();
    let mut stride = 1u64;
    let mut seen = 0u64;
    part.read(request, &mut |chunk| {
        for mark in &chunk.marks {
            if seen.is_multiple_of(stride) {
                plan.marks.push(Mark { row: plan.rows + mark.row, ..*mark });
            }
            seen += 1;
        }
        if plan.marks.len() > MARKS_MAX {
            stride *= 2;
            let mut place = 0u64;
            plan.marks.retain(|_| {
                place += 1;
                !place.is_multiple_of(2)
            });
        }
        plan.rows += chunk.rows as u64;
        learning.add(&name, chunk)
    })?;
    Ok(plan)
}

/// The survey of rows that are known without reading.
fn known(
    spec: &DataSpec,
    (format, part): (&str, &dyn Rows),
    (rows, schema): (u64, Schema),
    keep: Keep<'_>,
) -> Result<(Survey, Option<Table>)> {
    let plan = FilePlan { name: part.name(), rows, bytes: part.size()?, marks: vec![] };
    let survey = Survey {
        format: format.to_string(),
        rows,
        schema,
        class_rows: vec![],
        entries: None,
        intake: Intake::default(),
        group_rows: vec![],
        arrangement: Arrangement::AsRead,
        files: vec![plan],
        digest: blake3::hash(part.name().as_bytes()).to_hex().to_string(),
    };
    let table = reread(spec, &survey, keep)?;
    Ok((survey, table))
}

fn joined(digests: &[[u8; 32]]) -> String {
    match digests {
        [one] => blake3::Hash::from_bytes(*one).to_hex().to_string(),
        many => blake3::hash(many.as_flattened()).to_hex().to_string(),
    }
}
