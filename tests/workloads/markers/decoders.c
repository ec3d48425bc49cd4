// Stand-ins for rocDecode and rocJPEG, built once under each name, with a version number that does
// not exist.
#include "decoders.h"

#ifdef JPEG
int rocJpegStreamCreate(void **stream) { *stream = (void *)0x2000; return 0; }
int rocJpegStreamDestroy(void *stream) { return stream == (void *)0x2000 ? 0 : -1; }
int rocJpegDecode(void *decoder, void *stream, const struct decoding *how, void *to) {
    (void)decoder, (void)stream, (void)to;
    return how->format == OUTPUT_RGB ? -12 : 0;
}
#else
int rocDecGetDecoderCaps(struct capabilities *of) {
    if (!of) return -5;
    of->supported = 1;
    of->decoders = 2;
    of->max_width = 8192;
    of->min_height = 128;
    return 0;
}
int rocDecDecodeFrame(void *decoder, void *picture) { (void)picture; return decoder ? 0 : -3; }
int rocDecParseVideoData(void *parser, struct packet *packet) { (void)packet; return parser ? 0 : -3; }
#endif
