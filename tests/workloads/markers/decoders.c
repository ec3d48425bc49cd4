// Stand-ins for rocDecode and rocJPEG, built once under the name of each, with a version that does not exist.
#ifdef JPEG
int rocJpegStreamCreate(void **stream) { *stream = (void *)0x2000; return 0; }
int rocJpegStreamDestroy(void *stream) { return stream == (void *)0x2000 ? 0 : -1; }
#else
int rocDecGetDecoderCaps(void *capabilities) { return capabilities ? 0 : -3; }
int rocDecDecodeFrame(void *decoder, void *picture) { (void)picture; return decoder ? 0 : -3; }
#endif
