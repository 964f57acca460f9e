//! How rows of tensors travel between workers and server shards: a small head (postcard) that names tensors
//! and lengths, then the numbers as the codec writes them. Every length is checked before it is believed.

use super::columns;
use super::ownership::Ownership;
use serde::{Deserialize, Serialize};
use starlings_codec::{Codec, Compressor, Into as Put, Residuals};
use starlings_core::{Block, Body, Kind, Rng, Rows, Seat, Update, Values};

/// Blocks in one message at most.
const BLOCKS_MAX: usize = 10_000;

#[derive(Serialize, Deserialize)]
struct Head<M> {
    meta: M,
    blocks: Vec<BlockHead>,
}

#[derive(Serialize, Deserialize)]
struct BlockHead {
    name: String,
    kind: Kind,
    total: u32,
    width: u32,
    which: Which,
    /// How many columns are compressed, where any are.
    squeezed: Option<u32>,
    bytes: u32,
}

/// Which rows a block has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Which {
    /// All that the owner owns: both sides know them.
    Owned,
    /// From the first to before the last.
    Consecutive(u32, u32),
    /// Those whose numbers come along.
    Listed,
}

/// How numbers are written.
pub(crate) enum Pen<'a> {
    /// Each by itself.
    Codec(&'a dyn Codec),
    /// Compressed, what is lost kept; all but the given columns of a tensor as they are.
    Compressor(&'a dyn Compressor, &'a mut Residuals, &'a mut Rng),
}

/// How numbers are read.
#[derive(Clone, Copy)]
pub(crate) struct Glasses<'a> {
    /// Numbers that are not compressed.
    pub(crate) codec: &'a dyn Codec,
    /// Those that are.
    pub(crate) compressor: Option<&'a dyn Compressor>,
    /// Who owns which rows.
    pub(crate) owners: &'a Ownership,
    /// Whose rows are meant by all that are owned.
    pub(crate) owner: Seat,
}

/// Writes `meta` and blocks of rows that concern `owner`.
pub(crate) fn write<M: Serialize>(
    meta: M,
    blocks: &[Block],
    pen: &mut Pen<'_>,
    (owners, owner): (&Ownership, Seat),
) -> Vec<u8> {
    let mut body = Vec::new();
    let mut heads = Vec::with_capacity(blocks.len());
    for block in blocks {
        let Body::Rows(rows) = &block.body else { panic!("servers speak of rows only") };
        let before = body.len();
        let (mut which, mut squeezed) = (which(&block.name, &rows.index, owners, owner), None);
        let width = owners.width(&block.name).min(rows.width);
        match pen {
            Pen::Compressor(compressor, residuals, noise)
                if rows.values.kind() != Kind::I64 && owners.compresses(&block.name) =>
            {
                (which, squeezed) = (Which::Listed, Some(width));
                let rows = (block.name.as_str(), rows, width as usize);
                columns::encode(residuals, *compressor, rows, noise, &mut body);
            }
            Pen::Codec(codec) if which == Which::Listed => codec.encode_rows(rows, &mut body),
            Pen::Codec(codec) => codec.encode(&rows.values, 0, rows.values.len(), &mut body),
            Pen::Compressor(..) => {
                which = Which::Listed;
                crate::choices::raw().encode_rows(rows, &mut body);
            }
        }
        heads.push(BlockHead {
            name: block.name.clone(),
            kind: rows.values.kind(),
            total: rows.total,
            width: rows.width,
            which,
            squeezed,
            bytes: (body.len() - before) as u32,
        });
    }
    let head = postcard::to_stdvec(&Head { meta, blocks: heads }).expect("plain data serialises");
    let mut message = Vec::with_capacity(4 + head.len() + body.len());
    message.extend_from_slice(&(head.len() as u32).to_le_bytes());
    message.extend_from_slice(&head);
    message.extend_from_slice(&body);
    message
}

/// Reads what [`write`] wrote, or says what is wrong with the bytes.
pub(crate) fn read<M: for<'a> Deserialize<'a>>(
    bytes: &[u8],
    glasses: Glasses<'_>,
) -> Result<(M, Update), &'static str> {
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or("a message without a head")?;
    let len = u32::from_le_bytes(*len) as usize;
    let (head, mut body) = rest.split_at_checked(len).ok_or("a head longer than its message")?;
    let head: Head<M> = postcard::from_bytes(head).map_err(|_| "a head that cannot be read")?;
    if head.blocks.len() > BLOCKS_MAX {
        return Err("too many blocks");
    }
    let mut update = Update::default();
    for block in head.blocks {
        let (mine, rest) =
            body.split_at_checked(block.bytes as usize).ok_or("a block longer than its message")?;
        let rows = read_rows(&block, mine, glasses)?;
        update.blocks.push(Block { name: block.name, body: Body::Rows(rows) });
        body = rest;
    }
    if body.is_empty() { Ok((head.meta, update)) } else { Err("bytes after the last block") }
}

fn read_rows(head: &BlockHead, bytes: &[u8], glasses: Glasses<'_>) -> Result<Rows, &'static str> {
    let like = Rows::none(head.kind, head.total, head.width);
    if let Some(width) = head.squeezed {
        let compressor = glasses.compressor.ok_or("compressed rows where none are due")?;
        // No row has more columns than this: a bound on memory before the rows are believed.
        if head.width > owned_width_max(head, glasses.owners) || head.kind == Kind::I64 {
            return Err("rows with too many columns");
        }
        let rows = columns::decode(compressor, bytes, &like, width as usize);
        return rows.map_err(|malformed| malformed.0);
    }
    let index: Vec<u32> = match head.which {
        Which::Listed => {
            let codec = glasses.codec;
            return codec.decode_rows(bytes, &like).map_err(|malformed| malformed.0);
        }
        Which::Owned => glasses.owners.rows(&head.name, glasses.owner),
        Which::Consecutive(from, to) if from > to || to > head.total => {
            return Err("rows outside their table");
        }
        // No codec packs more than 64 numbers into a byte, so this bounds memory by bytes received.
        Which::Consecutive(from, to) if (to - from) as usize > bytes.len().saturating_mul(64) => {
            return Err("more rows than the bytes can hold");
        }
        Which::Consecutive(from, to) => (from..to).collect(),
    };
    if head.width == 0 && !index.is_empty() {
        return Err("rows without numbers");
    }
    let len = index.len().saturating_mul(head.width as usize);
    if len > bytes.len().saturating_mul(64) {
        return Err("more numbers than the bytes can hold");
    }
    let mut values = Values::zeros(head.kind, len);
    glasses.codec.decode(bytes, &mut values, 0..len, Put::Put).map_err(|malformed| malformed.0)?;
    Ok(Rows { index, values, ..like })
}

/// A few columns of statistics may come with the tensor's own.
fn owned_width_max(head: &BlockHead, owners: &Ownership) -> u32 {
    owners.width(&head.name).saturating_add(16)
}

fn which(name: &str, index: &[u32], owners: &Ownership, owner: Seat) -> Which {
    let (Some(&first), Some(&last)) = (index.first(), index.last()) else { return Which::Listed };
    if (last - first) as usize + 1 == index.len() {
        return Which::Consecutive(first, last + 1);
    }
    let owned = owners.owned(name, owner);
    let count: usize = owned.iter().map(|range| range.len()).sum();
    if count == index.len() && owned.into_iter().flatten().eq(index.iter().copied()) {
        return Which::Owned;
    }
    Which::Listed
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Model, Role, Tensor};

    fn owners() -> Ownership {
        let mut model = Model::new();
        model.set("table", Tensor::zeros(Kind::F64, &[9, 1], Role::Weight));
        Ownership::of(&model, 2)
    }

    fn message(total: u32, width: u32, which: Which) -> Vec<u8> {
        let (name, kind) = ("table".to_string(), Kind::F64);
        let block = BlockHead { name, kind, total, width, which, squeezed: None, bytes: 8 };
        let head = postcard::to_stdvec(&Head { meta: 7u64, blocks: vec![block] }).unwrap();
        [&(head.len() as u32).to_le_bytes()[..], &head, &1.5f64.to_le_bytes()].concat()
    }

    #[test]
    fn rows_come_back_and_lies_about_their_number_take_no_memory() {
        let (codec, owners) = (crate::choices::raw(), owners());
        let glasses = Glasses { codec: &*codec, compressor: None, owners: &owners, owner: Seat(0) };
        let (meta, update) =
            read::<u64>(&message(9, 1, Which::Consecutive(3, 4)), glasses).unwrap();
        let Body::Rows(rows) = &update.blocks[0].body else { panic!("servers speak of rows only") };
        assert_eq!((meta, &rows.index[..], rows.values.as_f64()), (7, &[3][..], Some(&[1.5][..])));
        for lie in [
            message(u32::MAX, 0, Which::Consecutive(0, u32::MAX)),
            message(u32::MAX, 1, Which::Consecutive(0, u32::MAX)),
            message(u32::MAX, u32::MAX, Which::Consecutive(0, u32::MAX)),
            message(9, 1, Which::Consecutive(4, 3)),
            message(9, 1, Which::Consecutive(9, 10)),
            message(9, u32::MAX, Which::Owned),
        ] {
            assert!(read::<u64>(&lie, glasses).is_err());
        }
        let whole = message(9, 1, Which::Consecutive(3, 4));
        for cut in 0..whole.len() {
            assert!(read::<u64>(&whole[..cut], glasses).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn all_owned_rows_need_no_row_numbers() {
        let (codec, owners) = (crate::choices::raw(), owners());
        let index = owners.rows("table", Seat(1));
        let values = Values::F64(index.iter().map(|&row| f64::from(row)).collect());
        let rows = Rows { total: 9, width: 1, index, values };
        let blocks = [Block::rows("table", rows)];
        let bytes = write(1u8, &blocks, &mut Pen::Codec(&*codec), (&owners, Seat(1)));
        let glasses = Glasses { codec: &*codec, compressor: None, owners: &owners, owner: Seat(1) };
        assert_eq!(read::<u8>(&bytes, glasses).unwrap().1.blocks, blocks);
    }
}
