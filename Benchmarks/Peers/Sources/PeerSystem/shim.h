// Linux's own, which its headers declare only to who asks for more than POSIX.
#ifdef __linux__
int syncfs(int descriptor);
#endif
