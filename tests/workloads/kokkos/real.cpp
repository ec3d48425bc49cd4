// A program that uses Kokkos itself. It prints nothing; the test knows what it does.
#include <Kokkos_Core.hpp>

int main(int argc, char **argv) {
    Kokkos::ScopeGuard guard(argc, argv);
    const int n = 1000;
    Kokkos::View<double *> a("a", n), b("b", n);
    Kokkos::Profiling::pushRegion("whole");
    for (int round = 0; round < 5; round++)
        Kokkos::parallel_for("fill", n, KOKKOS_LAMBDA(int i) { a(i) = i + round; });
    double sum = 0;
    Kokkos::parallel_reduce("sum", n, KOKKOS_LAMBDA(int i, double &s) { s += a(i); }, sum);
    Kokkos::deep_copy(b, a);
    Kokkos::parallel_scan("scan", n, KOKKOS_LAMBDA(int i, double &s, bool last) {
        s += a(i);
        if (last) b(i) = s;
    });
    Kokkos::Profiling::popRegion();
    Kokkos::Profiling::markEvent("done");
    return sum == n * (n - 1) / 2 + 4.0 * n ? 0 : 1;
}
