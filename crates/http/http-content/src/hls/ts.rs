//! MPEG transport streams (ISO/IEC 13818-1) of one program.

/// Bytes of a packet.
pub const PACKET_BYTES: usize = 188;
/// Bytes behind a packet's head.
const PAYLOAD_BYTES: usize = PACKET_BYTES - 4;
const PMT_PID: u16 = 0x1000;
const FIRST_PID: u16 = 0x100;
/// Continuity counters wrap at this count.
const ROUND: usize = 16;
/// Timestamps have 33 bits.
const TIME_MASK: u64 = (1 << 33) - 1;

/// An elementary stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementaryStream {
    /// `stream_type` of the program map.
    pub kind: u8,
    /// `stream_id` of packets.
    pub id: u8,
}

pub const H264: ElementaryStream = ElementaryStream { kind: 0x1b, id: 0xe0 };
pub const AAC: ElementaryStream = ElementaryStream { kind: 0x0f, id: 0xc0 };
pub const MPEG1_AUDIO: ElementaryStream = ElementaryStream { kind: 0x03, id: 0xc0 };
pub const MPEG2_AUDIO: ElementaryStream = ElementaryStream { kind: 0x04, id: 0xc0 };

/// A part of an elementary stream, with times of 90 kHz.
pub struct Unit<'a> {
    /// Index of its stream.
    pub stream: usize,
    pub pts: u64,
    /// If other than `pts`.
    pub dts: Option<u64>,
    /// Clock of the program.
    pub clock: Option<u64>,
    /// Decoding can begin with it.
    pub key: bool,
    /// The last one of its stream. Its packets complete a round of continuity counters: the next fragment begins at 0.
    pub last: bool,
    pub data: &'a [u8],
}

#[derive(Clone)]
pub struct PacketWriter {
    out: Vec<u8>,
    streams: Vec<ElementaryStream>,
    /// Packets of each stream.
    counts: Vec<usize>,
}

impl PacketWriter {
    /// Writes the tables of a program whose clock is in the stream of index 0.
    pub fn new(streams: Vec<ElementaryStream>) -> PacketWriter {
        let mut writer = PacketWriter { out: Vec::new(), counts: vec![0; streams.len()], streams };
        let [high, low] = (0xe000 | PMT_PID).to_be_bytes();
        writer.table(0, 0, &[0, 1, high, low]);
        let [high, low] = (0xe000 | pid(0)).to_be_bytes();
        let mut map = vec![high, low, 0xf0, 0];
        for (index, stream) in writer.streams.iter().enumerate() {
            let [high, low] = (0xe000 | pid(index)).to_be_bytes();
            map.extend_from_slice(&[stream.kind, high, low, 0xf0, 0]);
        }
        writer.table(PMT_PID, 2, &map);
        writer
    }

    /// Bytes that wait for [`PacketWriter::take`].
    pub fn length(&self) -> usize {
        self.out.len()
    }
    /// Takes the packets so far.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Writes a section of program 1 (or of the stream 1) in one packet.
    fn table(&mut self, pid: u16, id: u8, body: &[u8]) {
        let length = body.len() as u8 + 9;
        let mut section = vec![id, 0xb0, length, 0, 1, 0xc1, 0, 0];
        section.extend_from_slice(body);
        section.extend_from_slice(&crc(&section).to_be_bytes());
        let end = self.out.len() + PACKET_BYTES;
        let [high, low] = (0x4000 | pid).to_be_bytes();
        // The section begins behind the pointer.
        self.out.extend_from_slice(&[0x47, high, low, 0x10, 0]);
        self.out.extend_from_slice(&section);
        self.out.resize(end, 0xff);
    }

    pub fn unit(&mut self, unit: &Unit<'_>) {
        let Some(stream) = self.streams.get(unit.stream).copied() else { return };
        let head = pes_head(stream, unit);
        let adaptation = if unit.clock.is_some() {
            8
        } else if unit.key {
            2
        } else {
            0
        };
        let mut left = head.len() + unit.data.len();
        let more = left.saturating_sub(PAYLOAD_BYTES - adaptation).div_ceil(PAYLOAD_BYTES);
        let count = self.counts.get(unit.stream).copied().unwrap_or(0);
        let mut packets = 1 + more;
        if unit.last {
            // Each packet takes a byte.
            packets = (packets + (ROUND - (count + packets) % ROUND) % ROUND).min(left);
        }
        let mut payload = head.iter().chain(unit.data);
        for index in 0..packets {
            let least = if index == 0 { adaptation } else { 0 };
            let size = (PAYLOAD_BYTES - least).min(left - (packets - index - 1));
            left -= size;
            let start = if index == 0 { 0x4000 } else { 0 };
            let [high, low] = (start | pid(unit.stream)).to_be_bytes();
            let filled = PAYLOAD_BYTES - size;
            let control = if filled > 0 { 0x30 } else { 0x10 };
            self.out.extend_from_slice(&[0x47, high, low, control | ((count + index) % ROUND) as u8]);
            if filled > 0 {
                let end = self.out.len() + filled;
                self.out.push(filled as u8 - 1);
                if filled > 1 {
                    let key = if index == 0 && unit.key { 0x40 } else { 0 };
                    let clock = unit.clock.filter(|_| index == 0);
                    self.out.push(key | if clock.is_some() { 0x10 } else { 0 });
                    if let Some(clock) = clock {
                        // 33 bits, 6 reserved ones, and the extension.
                        let bits = (clock & TIME_MASK) << 15 | 0x7e00;
                        self.out.extend_from_slice(bits.to_be_bytes().get(2..).unwrap_or_default());
                    }
                }
                self.out.resize(end, 0xff);
            }
            self.out.extend(payload.by_ref().take(size));
        }
        if let Some(counted) = self.counts.get_mut(unit.stream) {
            *counted += packets;
        }
    }
}

fn pid(stream: usize) -> u16 {
    FIRST_PID + stream as u16
}

/// Head of a packetized elementary stream's packet.
fn pes_head(stream: ElementaryStream, unit: &Unit<'_>) -> Vec<u8> {
    let times = if unit.dts.is_some() { 10 } else { 5 };
    // 0 for video: not said.
    let length = u16::try_from(unit.data.len() + 3 + times).ok().filter(|_| stream != H264).unwrap_or(0);
    let mut head = vec![0, 0, 1, stream.id];
    head.extend_from_slice(&length.to_be_bytes());
    head.extend_from_slice(&[0x84, if unit.dts.is_some() { 0xc0 } else { 0x80 }, times as u8]);
    time(if unit.dts.is_some() { 3 } else { 2 }, unit.pts, &mut head);
    if let Some(dts) = unit.dts {
        time(1, dts, &mut head);
    }
    head
}

/// 33 bits in five bytes, with markers.
fn time(mark: u8, time: u64, out: &mut Vec<u8>) {
    let part = |shift: u32, mask: u64| ((time >> shift) & mask) as u8;
    out.extend_from_slice(&[
        mark << 4 | part(30, 7) << 1 | 1,
        part(22, 0xff),
        part(15, 0x7f) << 1 | 1,
        part(7, 0xff),
        part(0, 0x7f) << 1 | 1,
    ]);
}

/// CRC-32 of MPEG-2.
fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte) << 24,
            |crc, _| {
                if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_checksum() {
        assert_eq!(crc(b"123456789"), 0x0376_e6e7);
        let out = PacketWriter::new(vec![H264, AAC]).take();
        assert_eq!(out.len(), 2 * PACKET_BYTES);
        assert_eq!(
            out[..21],
            [0x47, 0x40, 0, 0x10, 0, 0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0, 0x2a, 0xb1, 4, 0xb2]
        );
        assert_eq!(
            out[PACKET_BYTES + 3..][..18],
            [0x10, 0, 2, 0xb0, 23, 0, 1, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0]
        );
    }

    #[test]
    fn units_fill_packets_and_complete_a_round() {
        for size in (1..400).chain([2900, 5000]) {
            for (key, clock, dts) in [(true, Some(TIME_MASK), Some(5)), (true, None, None), (false, None, None)] {
                let data: Vec<u8> = (0..size).map(|n| n as u8).collect();
                let mut writer = PacketWriter::new(vec![AAC]);
                for last in [false, true] {
                    writer.unit(&Unit { stream: 0, pts: 7, dts, clock, key, last, data: &data });
                }
                let out = writer.take();
                let packets: Vec<&[u8]> = out.chunks(PACKET_BYTES).skip(2).collect();
                assert_eq!(packets.len() % ROUND, 0);
                let mut seen = Vec::new();
                for (index, packet) in packets.iter().enumerate() {
                    assert_eq!(
                        (packet.len(), packet[0], usize::from(packet[3] & 15)),
                        (PACKET_BYTES, 0x47, index % ROUND)
                    );
                    let fill = if packet[3] & 0x20 != 0 { usize::from(packet[4]) + 1 } else { 0 };
                    seen.extend_from_slice(&packet[4 + fill..]);
                }
                let head = 9 + if dts.is_some() { 10 } else { 5 };
                assert_eq!(seen.len(), 2 * (head + size), "{size}");
                assert_eq!(seen[head..head + size], data);
                assert_eq!(seen[2 * head + size..], data);
            }
        }
    }
}
