// Declarations shared by the stand-ins for rocDecode and rocJPEG and by their caller: the tested
// parts of the interfaces.
#pragma once
#include <stdint.h>

enum { CODEC_HEVC = 4, CHROMA_420 = 1, END_OF_STREAM = 1, TIMESTAMP = 2, OUTPUT_RGB = 3 };

// RocdecDecodeCaps: inputs, then outputs.
struct capabilities {
    uint8_t device;
    int32_t codec, chroma;
    uint32_t depth_minus_8, reserved[3];
    uint8_t supported, decoders;
    uint16_t formats;
    uint32_t max_width, max_height;
    uint16_t min_width, min_height;
    uint32_t reserved_too[6];
};

// RocdecSourceDataPacket.
struct packet {
    uint32_t flags, bytes;
    const uint8_t *payload;
    uint64_t time;
};

// RocJpegDecodeParams.
struct decoding {
    int32_t format;
    int16_t left, top, right, bottom;
    uint32_t width, height;
};

int rocDecGetDecoderCaps(struct capabilities *);
int rocDecDecodeFrame(void *, void *);
int rocDecParseVideoData(void *, struct packet *);
int rocJpegStreamCreate(void **);
int rocJpegStreamDestroy(void *);
int rocJpegDecode(void *, void *, const struct decoding *, void *);
