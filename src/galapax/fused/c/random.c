#ifdef __CUDACC__
/* of numbers that are not tiny */
FN float log2_quick(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN float sqrt_quick(float x) { float y; asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN float over_quick(float a, float b) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b)); return a * y; }
FN float less_quick(float a, float b) { return fminf(a, b); }
FN u32 high_product(u32 a, u32 b) { return __umulhi(a, b); }
static __device__ __noinline__ float sin_far(float x) { return sinf(x); }
static __device__ __noinline__ float cos_far(float x) { return cosf(x); }
#else
FN float log2_quick(float x) { return log2f(x); }
FN float sqrt_quick(float x) { return sqrtf(x); }
FN float over_quick(float a, float b) { return a / b; }
FN float less_quick(float a, float b) { return a < b ? a : b; }
/* without a wide product, of which a processor makes fewer at once */
FN u32 high_product(u32 a, u32 b) {
    return b <= 65536u ? ((a >> 16) * b + ((a & 0xffffu) * b >> 16)) >> 16 : (u32)((u64)a * b >> 32); }
#define sin_far sinf
#define cos_far cosf
#endif
FN u32 drawn_word(u32 x, u32 second) {
    x = (x ^ (x >> 16)) * 0x21F0AAADu + second;
    x = (x ^ (x >> 15)) * 0x735A2D97u;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16); }
FN u32 mixed(u32 x) {
    x = (x ^ (x >> 16)) * 0x21F0AAADu;
    x = (x ^ (x >> 15)) * 0x735A2D97u;
    return x ^ (x >> 15); }
FN float signed_as(float x, u32 word) { return from_bits_f32(bits_f32(x) ^ (word & 0x80000000u)); }
FN float tail_of(u32 word) { return fmaf((float)(int)(word & 0x7fffffffu), 4.65661287e-10f, 2.32830644e-10f); }
FN float normal_number(u32 word) {
    float p = tail_of(word), c = fmaf(-0.693147181f, log2_quick(p * (2 - p)), -2.5f);
    float z = CENTRE;
    if (c >= 2.5f) { c = sqrt_quick(c + 2.5f) - 3; z = TAIL; }
    return signed_as(z * (1 - p), word); }
FN float cauchy_number(u32 word) {
    float half = fmaf((float)(int)(word & 0x7fffffffu), 2.32830644e-10f, 1.16415322e-10f);
    int far = half < 0.25f;
    float r = far ? half : 0.5f - half, q = r * r, sine = r * (SINE), cosine = COSINE;
    return signed_as(over_quick(far ? cosine : sine, far ? sine : cosine), word); }
