//! `[data] partition`: rows by key and in sorted order, for any number of workers, each row exactly once.

use starlings_core::Shard;
use starlings_data::{
    Arrangement, DataSpec, Encoding, Holding, LabelNeed, Loose, Partition, Room, Row, Survey,
    arrange, load, load_all, load_share, survey,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const SHARDS: u32 = 16;

/// Rows whose first number is their own, with ties and gaps in what they are sorted by.
fn text(rows: u32) -> String {
    let row = |row: u32| {
        let score = match row % 11 {
            0 => String::new(),
            _ => ((row * 7919) % 23).to_string(),
        };
        format!("{row},{score},user{},{}\n", (row * 31) % 7, row % 5)
    };
    "id,score,user,target\n".to_string() + &(0..rows).map(row).collect::<String>()
}

fn write(folder: &Path, rows: u32) -> String {
    let all = text(rows);
    let mut lines = all.lines();
    let header = lines.next().unwrap();
    let lines: Vec<&str> = lines.collect();
    for (file, lines) in lines.chunks(lines.len().div_ceil(3)).enumerate() {
        let text = format!("{header}\n{}\n", lines.join("\n"));
        std::fs::write(folder.join(format!("part-{file}.csv")), text).unwrap();
    }
    folder.join("part-*.csv").to_string_lossy().into_owned()
}

fn spec(place: &str, partition: Partition) -> DataSpec {
    let features = Some(vec!["id".into(), "score".into()]);
    DataSpec { partition: Some(partition), features, ..DataSpec::new(place).label("target") }
}

fn ids(holding: &Holding, shard: u32) -> Vec<u32> {
    let from = holding.starts[&Shard(shard)];
    let rows = from..from + holding.shard_rows(Shard(shard)) as usize;
    let id = |row| match holding.table.row(row) {
        Row::Dense(numbers) => numbers[0] as u32,
        Row::Sparse(..) => panic!("dense rows"),
    };
    rows.map(id).collect()
}

fn found(spec: &DataSpec) -> Survey {
    let found = survey(spec, Encoding::OneHot, LabelNeed::Number).unwrap();
    arrange(spec, found, SHARDS).unwrap()
}

/// What workers end up with when each reads its share and rows are exchanged.
fn exchanged(spec: &DataSpec, survey: &Survey, world: u32, room: Option<&Room>) -> Vec<Holding> {
    let holders: Vec<u32> = (0..SHARDS).map(|shard| shard % world).collect();
    let shares: Vec<Loose> =
        (0..world).map(|worker| load_share(spec, survey, (worker, world), room).unwrap()).collect();
    let receive = |worker: u32| {
        let parcels: Vec<Vec<u8>> = shares
            .iter()
            .map(|share| share.pack(&share.routes(survey, &holders, world)[worker as usize]))
            .collect();
        let keep: BTreeSet<Shard> =
            (0..SHARDS).filter(|it| it % world == worker).map(Shard).collect();
        let loose = Loose::unpack(survey, &parcels, room).unwrap();
        loose.settle(survey, (&keep, SHARDS), room).unwrap()
    };
    (0..world).map(receive).collect()
}

#[test]
fn sorted_rows_are_those_of_a_sort_in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    for (rows, column) in [(1000, "score"), (1000, "target"), (5, "score"), (333, "id")] {
        let spec = spec(&write(folder.path(), rows), Partition::Sort(column.into()));
        let key = |row: &u32| match column {
            "score" if row.is_multiple_of(11) => (u32::MAX, *row),
            "score" => ((row * 7919) % 23, *row),
            "target" => (row % 5, *row),
            _ => (*row, *row),
        };
        let mut wanted: Vec<u32> = (0..rows).collect();
        wanted.sort_by_key(key);
        let survey = found(&spec);
        let (known, whole) = load_all(&spec, Encoding::OneHot, LabelNeed::Number, SHARDS).unwrap();
        assert_eq!(known, survey);
        let all =
            |holding: &Holding| (0..SHARDS).flat_map(|it| ids(holding, it)).collect::<Vec<_>>();
        assert_eq!(all(&whole), wanted, "by {column}");
        agree(&spec, &survey, &whole);
    }
}

#[test]
fn rows_of_a_key_are_a_group_wherever_they_stand() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(&write(folder.path(), 1000), Partition::Key("user".into()));
    let survey = found(&spec);
    let users: Vec<String> = (0..7).map(|user| format!("user{user}")).collect();
    assert_eq!(survey.arrangement, Arrangement::Keys(users));
    let (_, whole) = load_all(&spec, Encoding::OneHot, LabelNeed::Number, SHARDS).unwrap();
    let mut homes: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for shard in 0..SHARDS {
        for id in ids(&whole, shard) {
            homes.entry((id * 31) % 7).or_default().insert(shard);
            assert!(seen.insert(id), "row {id} comes twice");
        }
    }
    assert_eq!(seen.len(), 1000);
    assert!(homes.values().all(|shards| shards.len() == 1), "{homes:?}");
    assert_eq!(whole.table.groups.len(), 1000);
    assert!(whole.table.groups.is_sorted());
    agree(&spec, &survey, &whole);
}

/// Whoever gets a shard, and however, has the same rows in the same order.
fn agree(spec: &DataSpec, survey: &Survey, whole: &Holding) {
    let folder = tempfile::tempdir().unwrap();
    let room = Room::new(1_000, folder.path().to_path_buf());
    for world in [1, 2, 3, 5] {
        for room in [None, Some(&room)] {
            for holding in exchanged(spec, survey, world, room) {
                for shard in holding.starts.keys().copied() {
                    assert_eq!(ids(&holding, shard.0), ids(whole, shard.0), "{shard} of {world}");
                    let alone = load(spec, survey, &[shard], SHARDS).unwrap();
                    assert_eq!(ids(&alone, shard.0), ids(whole, shard.0));
                    let (from, rows) = (holding.starts[&shard], holding.shard_rows(shard) as usize);
                    assert_eq!(holding.table.labels[from..from + rows], alone.table.labels[..]);
                }
            }
        }
    }
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = write(folder.path(), 50);
    let base = |partition| spec(&place, partition);
    let texts = DataSpec {
        features: Some(vec!["id".into(), "user".into()]),
        ..base(Partition::Sort("user".into()))
    };
    let both = DataSpec { group: Some("user".into()), ..base(Partition::Key("id".into())) };
    for (spec, words) in [
        (base(Partition::Sort("scor".into())), "'score'"),
        (base(Partition::Key("usr".into())), "'user'"),
        (base(Partition::Group), "group = "),
        (texts, "holds texts"),
        (both, "leave out `group`"),
    ] {
        let found = survey(&spec, Encoding::OneHot, LabelNeed::Number);
        let fault = found.and_then(|found| arrange(&spec, found, SHARDS)).unwrap_err();
        assert!(fault.to_string().contains(words), "{fault}");
    }
}

#[test]
fn broken_parcels_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(&write(folder.path(), 50), Partition::Sort("score".into()));
    let survey = found(&spec);
    let share = load_share(&spec, &survey, (0, 2), None).unwrap();
    let good = share.pack(&[0, 1, 2]);
    assert!(Loose::unpack(&survey, std::slice::from_ref(&good), None).is_ok());
    assert!(Loose::unpack(&survey, &[good[..good.len() - 3].to_vec()], None).is_err());
    // Rows that do not come are noticed.
    let keep: BTreeSet<Shard> = (0..SHARDS).map(Shard).collect();
    let loose = Loose::unpack(&survey, &[good], None).unwrap();
    assert!(
        loose.settle(&survey, (&keep, SHARDS), None).unwrap_err().to_string().contains("astray")
    );
}
