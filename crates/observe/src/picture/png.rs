//! PNG (ISO/IEC 15948): the shortest that is one. Eight bits a colour, every row as it is, all in one chunk.

use flate2::Compression;
use flate2::Crc;
use flate2::write::ZlibEncoder;
use std::io::Write;

/// Pixels of three bytes as a file.
pub(super) fn encode(width: usize, height: usize, pixels: &[u8]) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut head = Vec::new();
    head.extend((width as u32).to_be_bytes());
    head.extend((height as u32).to_be_bytes());
    // Eight bits, colours, and the only methods there are.
    head.extend([8, 2, 0, 0, 0]);
    chunk(&mut out, b"IHDR", &head);
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    for row in pixels.chunks_exact(3 * width) {
        // Writing into memory cannot fail.
        let _ = packed.write_all(&[0]).and_then(|()| packed.write_all(row));
    }
    chunk(&mut out, b"IDAT", &packed.finish().unwrap_or_default());
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], body: &[u8]) {
    out.extend((body.len() as u32).to_be_bytes());
    let from = out.len();
    out.extend(name);
    out.extend(body);
    let mut sum = Crc::new();
    sum.update(&out[from..]);
    out.extend(sum.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::ZlibDecoder;
    use std::io::Read;

    #[test]
    fn the_pixels_come_back() {
        let pixels: Vec<u8> = (0..2 * 3 * 3).collect();
        let file = encode(2, 3, &pixels);
        assert_eq!(&file[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(&file[16..24], [0, 0, 0, 2, 0, 0, 0, 3]);
        let at = file.windows(4).position(|four| four == b"IDAT").unwrap();
        let length = u32::from_be_bytes(file[at - 4..at].try_into().unwrap()) as usize;
        let mut rows = Vec::new();
        ZlibDecoder::new(&file[at + 4..at + 4 + length]).read_to_end(&mut rows).unwrap();
        let wanted: Vec<u8> = pixels.chunks(6).flat_map(|row| [&[0], row].concat()).collect();
        assert_eq!(rows, wanted);
        // The checksum of the empty last chunk is known to all readers.
        assert_eq!(&file[file.len() - 4..], [0xae, 0x42, 0x60, 0x82]);
    }
}
